"""Word-level and character-level tokenization of RoFormer checkpoints."""
