"""The public names of the package, and their registration with transformers. No file here is published beside a checkpoint."""
