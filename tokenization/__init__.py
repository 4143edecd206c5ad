"""Word-level and character-level tokenization of RoFormer checkpoints."""

from .tokenizer import RoFormerTokenizer, RoFormerTokenizerFast

__all__ = ["RoFormerTokenizer", "RoFormerTokenizerFast"]
