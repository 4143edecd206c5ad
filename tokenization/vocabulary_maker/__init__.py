"""Make a word vocabulary from a corpus: what `roformer vocab` does."""
