"""Lower-casing and accent stripping, with offsets into the original text."""

import functools
import unicodedata

import numpy as np


@functools.lru_cache(maxsize=1)
def _may_be_mark():
    """Return a table over UTF-16 code units: True for combining marks, and for surrogates, which may encode one."""
    table = np.zeros(0x10000, bool)
    table[[code for code in range(0x10000) if unicodedata.category(chr(code)) == "Mn"]] = True
    table[0xD800:0xE000] = True
    return table


def strip_marks(text):
    """Decompose a text (NFD) and drop its nonspacing marks: 'é' becomes 'e'."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFD", text)
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16)
    if not _may_be_mark()[units].any():
        return text
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    codes = codes[(codes > 0xFFFF) | _may_be_mark()[codes & 0xFFFF]]
    for character in map(chr, np.unique(codes)):
        if unicodedata.category(character) == "Mn":
            text = text.replace(character, "")
    return text


class Normalizer:
    """Normalization of a text before it is split into words.

    Args:
        lowercase: lower-case the text.
        strip_accents: decompose it after that, and drop nonspacing marks.
    """

    def __init__(self, lowercase, strip_accents):
        self.lowercase = lowercase
        self.strip_accents = strip_accents

    def __call__(self, text):
        if self.lowercase:
            text = text.lower()
        return strip_marks(text) if self.strip_accents else text

    def align(self, text):
        """Normalize a text, and return the origin of each character.

        Returns:
            (normalized, origins): origins is None if character i comes from character i, else a list with an index into
            `text` for each character of `normalized`, followed by len(text).
        """
        full = text.lower() if self.lowercase else text
        if self.strip_accents:
            full = unicodedata.normalize("NFD", full)
        normalized = self(text)
        # Neither lower-casing nor NFD ever shortens a text, so equal lengths mean that each character became one
        # character.
        if len(text) == len(full) == len(normalized):
            return normalized, None
        # The context can change what a character becomes (the final sigma), but never how many characters.
        becomes = {character: range(len(self(character))) for character in set(text)}
        origins = [index for index, character in enumerate(text) for _ in becomes[character]]
        return normalized, [*origins, len(text)]
