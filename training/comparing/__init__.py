"""Comparison of runs: curves and significance."""
