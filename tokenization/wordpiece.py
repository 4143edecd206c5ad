"""Ids of words: the word's own entry if the vocabulary has it, else BERT's basic tokenization and WordPiece.

The normalization of texts and the classes of characters are those of bert4keras.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

PREFIX = "##"
LONGEST_WORD = 200  # characters; longer words are unknown as a whole
_CACHED_WORDS = 1 << 17  # a corpus has more words, so a full cache is cleared
_CACHED_LENGTH = 32  # characters; longer words rarely occur twice

_HAN = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f]"
)
# All nonspacing marks, and others, but no character that is frequent in Chinese or English.
_MAY_BE_MARK = re.compile(
    "[\u0300-\u036f\u0483-\u10ff\u135d-\u1dff\u20d0-\u20ff\u2cef-\u2dff\u302a-\u302d\u3099\u309a\ua66f-\uabff\ufb1e"
    "\ufe00-\ufe2f\U00010000-\U0001ffff\U000e0000-\U000e0fff]"
)


class Normalizer(NamedTuple):
    """Normalization of a text before it is split into words.

    lowercase: lower-case the text; strip_accents: decompose it (NFD) after that, and drop nonspacing marks, so that 'é'
        becomes 'e'.
    """

    lowercase: bool
    strip_accents: bool

    def __call__(self, text: str) -> str:
        text = text.lower() if self.lowercase else text
        if not self.strip_accents or text.isascii():
            return text
        text = unicodedata.normalize("NFD", text)
        for character in set(_MAY_BE_MARK.findall(text)):
            if unicodedata.category(character) == "Mn":
                text = text.replace(character, "")
        return text

    def align(self, text: str) -> tuple[str, list[int] | None]:
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


Value = TypeVar("Value")


class WordCache(dict[str, Value]):
    """Cache of a function of a word; cleared when it is full."""

    def __init__(self, compute: Callable[[str], Value]):
        super().__init__()
        self.compute = compute

    def __missing__(self, word: str) -> Value:
        value = self.compute(word)
        if len(word) <= _CACHED_LENGTH:
            if len(self) >= _CACHED_WORDS:
                self.clear()
            self[word] = value
        return value


class WordPiece:
    """Ids of words. They depend only on the word, so they are cached.

    Args:
        vocabulary: entry -> id.
        unk_id: id of words that cannot be composed of entries.
        normalizer: applied once more to words that have no entry, as bert4keras does.
        whole_words: whether to look up whole words first; False at character level.

    Attributes:
        ids: mapping of word -> tuple of ids.
        spans: mapping of word -> (n, [(start, end, k), ...]): for each id the first and last + 1 of its characters in
            the word, and k, the one of the n words of basic tokenization that it belongs to.
    """

    def __init__(self, vocabulary: Mapping[str, int], unk_id: int, normalizer: Normalizer, whole_words: bool):
        self.vocabulary = vocabulary
        self.unk_id = unk_id
        self.normalizer = normalizer
        self.whole_words = whole_words
        self.longest_entry = max(map(len, vocabulary))
        self.ids: WordCache[tuple[int, ...]] = WordCache(lambda word: tuple([piece[0] for piece in self.pieces(word)]))
        self.spans = WordCache(self._spans)

    def __reduce__(self) -> tuple[Any, ...]:  # without the caches, so that use changes neither pickles nor fingerprints
        return type(self), (self.vocabulary, self.unk_id, self.normalizer, self.whole_words)

    def _spans(self, word: str) -> tuple[int, list[tuple[int, int, int]]]:
        pieces = self.pieces(word)
        return (pieces[-1][3] + 1 if pieces else 0), [piece[1:] for piece in pieces]

    def pieces(self, word: str) -> list[tuple[int, int, int, int]]:
        """Return a list of (id, start, end, k); see `spans`."""
        if self.whole_words and word in self.vocabulary:
            # White space can be an entry (U+2028), but bert4keras never returns it.
            return [] if word.isspace() else [(self.vocabulary[word], 0, len(word), 0)]
        text, origins = self.normalizer.align(word)
        pieces = []
        for k, (characters, places) in enumerate(basic_words(text)):
            for token, start, end in self.split(characters):
                first, last = places[start], places[end - 1]
                if origins is not None:
                    first, last = origins[first], origins[last]
                pieces.append((token, first, last + 1, k))
        return pieces

    def split(self, word: str) -> list[tuple[int, int, int]]:
        """Return the WordPiece tokens of a word as a list of (id, start, end).

        The first token is the longest entry that starts the word, each next one the longest "##" entry that continues
        it. A word that cannot be composed is one unknown token.
        """
        if len(word) > LONGEST_WORD:
            return [(self.vocabulary.get(word, self.unk_id), 0, len(word))]
        tokens, start, prefix = [], 0, ""
        while start < len(word):
            ends = range(min(len(word), start + self.longest_entry), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.vocabulary), None)
            if end is None:
                return [(self.unk_id, 0, len(word))]
            tokens.append((self.vocabulary[prefix + word[start:end]], start, end))
            start, prefix = end, PREFIX
        return tokens


def is_cjk(character: str) -> bool:
    """Return whether a character is Han, so a word of its own in basic tokenization."""
    return _HAN.match(character) is not None


def is_punctuation(character: str) -> bool:
    """Return whether a character is punctuation of Unicode or of ASCII, where symbols ($, +, ^ ...) count too."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def basic_words(text: str) -> list[tuple[str, list[int]]]:
    """Return the words of BERT's basic tokenization as a list of (word, the index in `text` of each of its characters).

    White space ends a word. Each Han character and each punctuation mark is a word of its own. Control and format
    characters and U+FFFD are dropped without ending their word, and so is other white space (\\v, \\f, U+0085 ...).
    """
    words, ended = [], True
    for place, character in enumerate(text):
        category = unicodedata.category(character)
        alone = is_cjk(character) or is_punctuation(character)
        if alone or category[0] == "Z" or character in " \n\r\t":
            ended = True
            if alone:
                words.append([place])
        elif category not in ("Cc", "Cf") and character != "\ufffd":
            if ended:
                words.append([])
                ended = False
            words[-1].append(place)
    return [("".join([text[place] for place in places]), places) for places in words]
