"""Model cards: a folder for each released checkpoint, and a template for all others."""

from .cards import card_for, published_checkpoints
from .facts import conversion_facts, data_files, file_fact, measure, sha256_of
from .folder_card import CardReport, card_of_folder, write_card
from .trained_card import published_name, write_trained_card

__all__ = [
    "CardReport",
    "card_for",
    "card_of_folder",
    "conversion_facts",
    "data_files",
    "file_fact",
    "measure",
    "published_checkpoints",
    "published_name",
    "sha256_of",
    "write_card",
    "write_trained_card",
]
