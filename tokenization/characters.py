"""Classes of characters, as BERT's basic tokenization draws them in bert4keras."""

import unicodedata

_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_cjk(character):
    """Han characters, which are words by themselves."""
    code = ord(character)
    return code >= 0x3400 and any(first <= code <= last for first, last in _CJK)


def is_punctuation(character):
    """Unicode's punctuation, and all of ASCII that is neither letter, digit nor space ($, +, ^ ... are not P there)."""
    code = ord(character)
    return (
        33 <= code <= 47
        or 58 <= code <= 64
        or 91 <= code <= 96
        or 123 <= code <= 126
        or unicodedata.category(character).startswith("P")
    )


def is_space(character):
    """What ends a word. Other white space (\\v, \\f, U+0085 ...) is a control character, which is dropped instead."""
    return character in " \n\r\t" or unicodedata.category(character) in ("Zs", "Zl", "Zp")


def is_dropped(character):
    """Control and format characters, NUL and U+FFFD: left out, without ending the word they stand in."""
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf")
