"""Classes of characters in BERT's basic tokenization, as bert4keras defines them."""

import string
import unicodedata

_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_cjk(character):
    """Return whether a character is Han; each Han character is a word of its own."""
    code = ord(character)
    return code >= 0x3400 and any(first <= code <= last for first, last in _CJK)


def is_punctuation(character):
    """Return whether a character is punctuation of Unicode or of ASCII, where symbols ($, +, ^ ...) count too."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def is_space(character):
    """Return whether a character ends a word. Other white space (\\v, \\f, U+0085 ...) is a dropped control
    character."""
    return character in " \n\r\t" or unicodedata.category(character) in ("Zs", "Zl", "Zp")


def is_dropped(character):
    """Return whether a character is dropped without ending its word: control and format characters, NUL and U+FFFD."""
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf")
