"""Lower-casing and accent stripping, and the way back to the text as it was written."""

import functools
import unicodedata

import numpy as np


@functools.lru_cache(maxsize=1)
def _needs_a_look():
    """Table over UTF-16 code units: True where a combining mark may stand (surrogates: marks beyond the BMP)."""
    table = np.zeros(0x10000, bool)
    table[[code for code in range(0x10000) if unicodedata.category(chr(code)) == "Mn"]] = True
    table[0xD800:0xE000] = True
    return table


def strip_marks(text):
    """`text` decomposed (NFD), without its nonspacing marks: 'é' becomes 'e'."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFD", text)
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16)
    if not _needs_a_look()[units].any():
        return text
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    codes = codes[(codes > 0xFFFF) | _needs_a_look()[codes & 0xFFFF]]
    for character in map(chr, np.unique(codes)):
        if unicodedata.category(character) == "Mn":
            text = text.replace(character, "")
    return text


class Normalizer:
    """What a text goes through before it is cut into words.

    Args:
        lowercase: lower-case first.
        strip_accents: then decompose and drop nonspacing marks.
    """

    def __init__(self, lowercase, strip_accents):
        self.lowercase = lowercase
        self.strip_accents = strip_accents

    def __call__(self, text):
        if self.lowercase:
            text = text.lower()
        return strip_marks(text) if self.strip_accents else text

    def align(self, text):
        """Normalize, and say where each character comes from.

        Returns:
            (normalized, origins): origins is None where character i comes from character i, else a list with an
            index into `text` for each character of `normalized`, and one more, len(text).
        """
        full = text.lower() if self.lowercase else text
        if self.strip_accents:
            full = unicodedata.normalize("NFD", full)
        normalized = self(text)
        # Neither lower-casing nor NFD ever shortens, so equal lengths before the marks go mean one for one.
        if len(text) == len(full) == len(normalized):
            return normalized, None
        # What stands around a character can change it (the final sigma), but never into how many it turns.
        becomes = {character: range(len(self(character))) for character in set(text)}
        origins = [index for index, character in enumerate(text) for _ in becomes[character]]
        return normalized, [*origins, len(text)]
