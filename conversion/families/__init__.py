"""The families of checkpoints: their configurations, their weights, and the signs that identify them."""
