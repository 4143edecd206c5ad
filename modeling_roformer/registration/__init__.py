"""Public names of the package and their registration with transformers; not published beside checkpoints."""
