"""Comparison of runs: curves, tables, significance, and Figure 2 of the paper."""
