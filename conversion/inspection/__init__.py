"""Describe a checkpoint without loading it."""
