"""Translation: pairs of sentences, their joint vocabulary, batches of as many tokens, and the average of checkpoints."""
