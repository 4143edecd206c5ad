"""Vocabularies of tests/fixtures/tokenization; tests/tokenization/conftest.py has tokenizers of them."""

from helpers.paths import REPOSITORY

FIXTURES = REPOSITORY / "tests" / "fixtures" / "tokenization"
VOCABULARY, CHARACTER_VOCABULARY = FIXTURES / "vocab.txt", FIXTURES / "vocab_chars.txt"


def entries_of(path):
    """Return the ids of a vocabulary's entries."""
    return {entry: number for number, entry in enumerate(path.read_text(encoding="utf-8").split("\n")[:-1])}


WORD_VOCABULARY = entries_of(VOCABULARY)
