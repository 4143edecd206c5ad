"""Word vocabularies made from a corpus (`roformer vocab`)."""
