"""Translation: a joint vocabulary, and the average of checkpoints."""
