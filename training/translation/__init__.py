"""Translation: sentence pairs, a joint vocabulary, batches by number of tokens, and the average of checkpoints."""
