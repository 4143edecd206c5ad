"""A checkpoint understood: its variables matched with the weights of a model."""
