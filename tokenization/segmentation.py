"""Segmentation of normalized text into words.

jieba without its hidden Markov model (HMM) searches for the likeliest path through the words of its dictionary. rjieba
has the same dictionary and search in Rust, an order of magnitude faster. The two agree on every text (the tests compare
them over all of Unicode), except that texts with rare characters must be passed to rjieba in jieba's blocks.
`_JiebaSearch` is jieba's search in Python, for user words of frequency 0, which rjieba does not support, and where
rjieba is missing. Only the dictionary of jieba is read.
"""

import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache, partial
from itertools import chain
from math import log
from pathlib import Path
from typing import Any

# jieba 0.42.1 first splits a text into these blocks and others, and only looks up these in the dictionary.
_WORD_BLOCK = re.compile("([\u4e00-\u9fd5a-zA-Z0-9+#&\\._%\\-]+)")
# rjieba's blocks contain these too, and it refuses surrogates. In a longer block the path has another sum of
# logarithms, and its last digit decides between two paths with the same words in another order (卖|卖卖 and 卖卖|卖).
_RARE = re.compile("[\u3400-\u4dbf\u9fd6-\u9fff\ud800-\udfff\uf900-\ufaff\U00020000-\U0003ffff]")
_SPACE_BLOCK = re.compile(r"(\r\n|\s)")
_USER_LINE = re.compile("(?s)(.+?)(?: ([0-9]+))?(?: [a-z]+)?")  # jieba's; of two spaces, one is part of the word
_STRIPPED = " \t\n\r\v\f"  # characters that jieba strips from the lines of a file

# A long text is segmented in parts of about 4,096 characters, so that the words of a part are still in the CPU's cache
# when they are looked up. A part ends at a character outside the blocks, so its words are the same as in the whole
# text.
_PART = re.compile("(?s).{4096}.*?(?:\r\n|[^\u4e00-\u9fd5a-zA-Z0-9+#&\\._%\\-])|.+")

# A word that takes up surplus frequency. It is outside the blocks above, so it is never found in a text.
_SURPLUS_WORD = "\U0010fffd"

# Frequency of the word that jieba's dictionary has twice; only jieba's total counts it twice.
_COUNTED_TWICE = 3


def read_user_dict(user_dict: str | os.PathLike | Iterable[str] | None) -> tuple[str, ...]:
    """Return the lines of a jieba user dictionary ("word", "word 100", "word 100 n"), read as jieba reads a file: a
    line of another form is a word as a whole.

    Args:
        user_dict: path of a file in UTF-8, or a list of lines; None for no lines.

    Raises:
        ValueError: the file is not UTF-8.
    """
    lines: Iterable[str]
    if not isinstance(user_dict, (str, os.PathLike)):
        lines = user_dict or ()
    else:
        try:
            lines = Path(user_dict).read_bytes().decode("utf-8").split("\n")
        except UnicodeDecodeError:
            raise ValueError(f"user_dict {os.fspath(user_dict)} is not UTF-8") from None
    stripped = (line.lstrip(_STRIPPED + "\ufeff").rstrip(_STRIPPED) for line in lines)
    return tuple(line for line in stripped if line)


def words_to_find(user_words: Iterable[str]) -> list[str]:
    """Return the words of lines from `read_user_dict`, without those of frequency 0, which jieba must not find."""
    return [word for word, freq in dict(map(_word_and_freq, user_words)).items() if freq != 0]


def _word_and_freq(line: str) -> tuple[str, int | None]:
    match = _USER_LINE.fullmatch(line)
    assert match is not None  # for type checkers: any text matches
    return match[1], int(match[2]) if match[2] else None


class _JiebaSearch:
    """jieba's search without HMM, over its dictionary and the user's words.

    Attributes:
        freqs: word -> frequency, with 0 for the beginnings of words; total: sum of the frequencies.
        changed: user word -> frequency in jieba's dictionary; total_before: the sum there.
    """

    def __init__(self, user_words: Iterable[str]):
        jieba = importlib.util.find_spec("jieba")  # without an import, which warns of escapes that Python will refuse
        if jieba is None or not jieba.submodule_search_locations:
            reason = "user_dict" if user_words else "segmentation without rjieba"
            raise ImportError(f"{reason} needs the dictionary of jieba: pip install jieba")
        self.freqs: dict[str, int] = {}
        self.total = 0
        with open(os.path.join(jieba.submodule_search_locations[0], "dict.txt"), encoding="utf-8") as file:
            for line in file:
                word, freq = line.split(" ")[:2]
                self._add(word, int(freq))
        self.changed: dict[str, int] = {}
        self.total_before = self.total
        for line in user_words:
            word, freq = _word_and_freq(line)
            freq = self._suggested_frequency(word) if freq is None else freq
            self.changed.setdefault(word, self.freqs.get(word, 0))
            self._add(word, freq)

    def _add(self, word: str, freq: int) -> None:
        self.freqs[word] = freq
        self.total += freq
        for end in range(1, len(word)):
            self.freqs.setdefault(word[:end], 0)

    def _suggested_frequency(self, word: str) -> int:
        """Return the lowest frequency that makes jieba find a word: just above the product of its parts'."""
        share, total = 1, float(self.total)
        for part in _cut_blocks(self.cut, word):
            share *= self.freqs.get(part, 1) / total
        return max(int(share * self.total) + 1, self.freqs.get(word, 1))

    def cut(self, block: str, hmm: bool = False) -> list[str]:
        """Return the words of a block, which has only characters of `_WORD_BLOCK`; `hmm` is False, as for rjieba's."""
        freqs, log_total, length = self.freqs, log(self.total), len(block)
        best = [(0.0, length)] * (length + 1)  # score and end of the word, for the likeliest path from each character
        for start in range(length - 1, -1, -1):
            ends, end = [], start + 1
            while end <= length and (freq := freqs.get(block[start:end])) is not None:
                if freq:
                    ends.append(end)
                end += 1
            # In jieba's order of operations: the last digit decides between equally likely paths.
            best[start] = max(
                (log(freqs.get(block[start:end]) or 1) - log_total + best[end][0], end) for end in ends or [start + 1]
            )
        words, at, joins = [], 0, False
        while at < length:
            word = block[at : best[at][1]]
            at += len(word)
            is_letter = len(word) == 1 and word.isascii() and word.isalnum()
            if is_letter and joins:
                words[-1] += word
            else:
                words.append(word)
            joins = is_letter
        return words


@lru_cache(maxsize=4)
def _cutter(user_words: tuple[str, ...]) -> Callable[[str], Iterable[str]]:
    """Return the function that splits a text into jieba's words and the user's."""
    try:
        import rjieba

        words = rjieba.Jieba()
    except (ImportError, AttributeError):
        return partial(_cut_blocks, _JiebaSearch(user_words).cut)
    surplus = _COUNTED_TWICE  # every score is divided by the total, so the totals must be equal
    if user_words:
        search = _JiebaSearch(user_words)
        if any(search.freqs[word] == 0 for word in search.changed):  # jieba skips these, rjieba does not
            return partial(_cut_blocks, search.cut)
        surplus += search.total - search.total_before
        for word, before in search.changed.items():
            if _WORD_BLOCK.fullmatch(word):  # all others are never found
                words.add_word(word, search.freqs[word], None)
                surplus -= search.freqs[word] - before  # jieba's total keeps the old frequency too
    words.add_word(_SURPLUS_WORD, surplus, None)
    return lambda text: _cut_blocks(words.cut, text) if _RARE.search(text) else words.cut(text, False)


def _cut_blocks(cut: Callable[[str, bool], Iterable[str]], text: str) -> list[str]:
    """Return the words of a text, given the function that cuts a block."""
    words = []
    for block in _WORD_BLOCK.split(text):
        if _WORD_BLOCK.match(block):
            words.extend(cut(block, False))
        else:
            for piece in _SPACE_BLOCK.split(block):
                words.extend([piece] if _SPACE_BLOCK.match(piece) else piece)
    return words


class JiebaSegmenter:
    """Segmenter with exactly the words of `jieba.cut(text, HMM=False)`.

    Args:
        user_words: lines from `read_user_dict`.

    A call with a text returns an iterable of words, which join to the text. The dictionary is read at the first call,
    and is not pickled.
    """

    def __init__(self, user_words: tuple[str, ...] = ()):
        self.user_words = user_words

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.user_words,)

    @cached_property
    def _cut(self) -> Callable[[str], Iterable[str]]:
        return _cutter(self.user_words)

    def __call__(self, text: str) -> Iterator[str]:
        return chain.from_iterable(map(self._cut, _PART.findall(text)))


# Han characters and white space always end a word; basic tokenization splits the text between them.
_UNIT = re.compile("[\u4e00-\u9fff \n\r\t]|[^\u4e00-\u9fff \n\r\t]+")


def split_characters(text: str) -> list[str]:
    """Split a text into the smallest parts that basic tokenization can process one by one, for character
    vocabularies."""
    return _UNIT.findall(text)


def split_by_callable(segment: Callable[[str], Iterable[str]], text: str) -> Iterator[str]:
    """Split a normalized text by a user's callable, which takes it and returns its words in order.

    The callable may leave out characters between the words.

    Raises:
        ValueError: a word does not follow in the text.
    """
    words, at = [], 0
    for word in segment(text):
        start = text.find(word, at) if isinstance(word, str) else -1
        if start < 0:
            raise ValueError(
                f"the segmenter returned {word!r}, which does not occur after the first {at} characters of the text"
            )
        words += [text[at:start], word]
        at = start + len(word)
    return filter(None, [*words, text[at:]])
