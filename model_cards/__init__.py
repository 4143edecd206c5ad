"""Model cards: one folder for each published checkpoint, and a template for any other."""

from .cards import card_for, published_checkpoints

__all__ = ["card_for", "published_checkpoints"]
