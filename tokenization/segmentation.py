"""Segmentation of normalized text into words.

jieba without its hidden Markov model (HMM) searches for the likeliest path through the words of its dictionary. rjieba
has the same dictionary and search in Rust, an order of magnitude faster. The two agree on every text (the tests compare
them over all of Unicode), except that texts with rare characters must be passed to rjieba in jieba's blocks. jieba
itself is used for what rjieba does not support: lone surrogates, and user words of frequency 0.
"""

import functools
import os
import re
import warnings
from itertools import chain

from .whole_file import LARGE, read_bytes

# jieba 0.42.1 first splits a text into these blocks and others, and only looks up these in the dictionary.
_WORD_BLOCK = re.compile("([\u4e00-\u9fd5a-zA-Z0-9+#&\\._%\\-]+)")
# rjieba's blocks contain these too. In a longer block the path has another sum of logarithms, and its last digit
# decides between two paths with the same words in another order (卖|卖卖 and 卖卖|卖).
_ONLY_RJIEBA = re.compile("[\u3400-\u4dbf\u9fd6-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SPACE_BLOCK = re.compile(r"(\r\n|\s)")
_USER_LINE = re.compile(r"^(?P<word>.+?)(?: (?P<freq>[0-9]{1,100}))?(?: (?P<tag>[a-z]+))?$")

# A long text is segmented in parts, so that the words of a part are still in the CPU's cache when they are looked up. A
# part ends at a character outside the blocks, so its words are the same as in the whole text.
_PART = 4096
_END_OF_PART = re.compile("\r\n|[^\u4e00-\u9fd5a-zA-Z0-9+#&\\._%\\-]")

# A word that takes up surplus frequency. It is outside the blocks above, so it is never found in a text.
_NOWHERE = "\U0010fffd"

# Frequency of the word that jieba's dictionary has twice; only jieba's total counts it twice.
_COUNTED_TWICE = 3


class UserDictionaryError(ValueError):
    """A user dictionary that cannot be read; the message names the line."""


def read_user_dict(user_dict):
    """Return the lines of a jieba user dictionary ("word", "word 100", "word 100 n") as a tuple of str.

    Args:
        user_dict: path of a file in UTF-8, or a list of lines; None for no lines.

    Raises:
        UserDictionaryError: the file cannot be read, or a line is wrong.
    """
    if user_dict is None:
        return ()
    if isinstance(user_dict, (str, os.PathLike)):
        source = f"user_dict {os.fspath(user_dict)}"
        try:
            lines = read_bytes(user_dict, LARGE).decode("utf-8-sig").split("\n")
        except (OSError, ValueError) as error:
            reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", error)
            raise UserDictionaryError(f"{source} cannot be read: {reason}") from None
    elif isinstance(user_dict, (list, tuple)):
        source, lines = "user_dict", user_dict
    else:
        raise UserDictionaryError(f"user_dict is {user_dict!r}; expected a path or a list of lines")
    words = []
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise UserDictionaryError(f"{source}, line {number}: {line!r} is not a str")
        line = line.strip()
        if not line:
            continue
        match = _USER_LINE.match(line)  # None if a line contains a line break
        if match is None or len(match["word"].split()) > 1:
            raise UserDictionaryError(
                f"{source}, line {number}: {line!r}; expected a word, then optionally a whole number and a tag in "
                "small letters, separated by single spaces"
            )
        words.append(line)
    return tuple(words)


def words_to_find(user_words):
    """Return the words of lines from `read_user_dict`, without those of frequency 0, which jieba must not find."""
    return [word for word, freq in map(_word_and_freq, user_words) if freq is None or int(freq) > 0]


def _word_and_freq(line):
    match = _USER_LINE.match(line)
    assert match is not None  # `read_user_dict` refuses all other lines
    return match["word"], match["freq"]


@functools.lru_cache(maxsize=4)
def _jieba(user_words):
    """Return jieba's tokenizer with the user's words. It changes neither `jieba.dt` nor the temporary folder: it writes
    no cache file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import jieba
        except ImportError:
            raise ImportError("word segmentation needs jieba: pip install jieba (or rjieba, which is faster)") from None
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = jieba.Tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    for line in user_words:
        word, freq = _word_and_freq(line)
        freq = tokenizer.suggest_freq(word) if freq is None else int(freq)
        tokenizer.FREQ[word] = freq
        tokenizer.total += freq
        for end in range(1, len(word)):
            tokenizer.FREQ.setdefault(word[:end], 0)
    return tokenizer


@functools.lru_cache(maxsize=4)
def _rjieba(user_words):
    """Return the `cut` of an rjieba with the same words as `_jieba(user_words)`; None if rjieba cannot give them."""
    try:
        import rjieba

        words = rjieba.Jieba()
    except (ImportError, AttributeError):
        return None
    surplus = _COUNTED_TWICE  # every score is divided by the total, so the totals must be equal
    if user_words:
        exact = _jieba(user_words)
        base = _jieba(())
        changed = {word for word, _ in map(_word_and_freq, user_words)}
        if exact.total >= 2**53 or any(exact.FREQ[word] == 0 for word in changed):
            return None  # jieba skips words of frequency 0 and takes logarithms of any integer; rjieba does not
        surplus += exact.total - base.total
        for word in changed:
            words.add_word(word, exact.FREQ[word], None)
            surplus -= exact.FREQ[word] - base.FREQ.get(word, 0)  # jieba's total keeps the old frequency too
    words.add_word(_NOWHERE, surplus, None)
    return words.cut


def _parts(text):
    start = 0
    while start < len(text):
        end = _END_OF_PART.search(text, start + _PART)
        end = end.end() if end is not None else len(text)
        yield text[start:end]
        start = end


class JiebaSegmenter:
    """Segmenter with exactly the words of `jieba.cut(text, HMM=False)`.

    Args:
        user_words: lines from `read_user_dict`.

    A call with a text returns an iterable of words, which join to the text. The dictionary is read at the first call,
    and is not pickled.
    """

    def __init__(self, user_words=()):
        self.user_words = user_words

    def __reduce__(self):
        return type(self), (self.user_words,)

    @functools.cached_property
    def _cut(self):
        return _rjieba(self.user_words)

    def __call__(self, text):
        if len(text) <= _PART:
            return self._words(text)
        return chain.from_iterable(map(self._words, _parts(text)))

    def _words(self, text):
        if self._cut is not None and not _ONLY_RJIEBA.search(text):
            try:
                return self._cut(text, False)
            except UnicodeEncodeError:  # a lone surrogate, which Rust's strings cannot hold
                pass
        words = []
        for block in _WORD_BLOCK.split(text):
            if _WORD_BLOCK.match(block):
                words.extend(self._cut(block, False) if self._cut else _jieba(self.user_words).cut(block, HMM=False))
            else:
                for piece in _SPACE_BLOCK.split(block):
                    words.extend([piece] if _SPACE_BLOCK.match(piece) else piece)
        return words


# Han characters and white space always end a word; basic tokenization splits the text between them.
_UNIT = re.compile("[\u4e00-\u9fff \n\r\t]|[^\u4e00-\u9fff \n\r\t]+")


def cut_characters(text):
    """Split a text into the smallest parts that basic tokenization can process one by one, for character
    vocabularies."""
    return _UNIT.findall(text)


class CustomSegmenter:
    """Segmenter made from a user's callable, which takes a normalized text and returns its words in order.

    The callable may leave out characters between the words. A word that does not follow in the text raises a
    ValueError.
    """

    def __init__(self, segment):
        self.segment = segment

    def __call__(self, text):
        words, at = [], 0
        for word in self.segment(text):
            start = text.find(word, at) if isinstance(word, str) else -1
            if start < 0:
                raise ValueError(
                    f"the segmenter returned {word!r}, which does not occur after the first {at} characters of the text"
                )
            if start > at:
                words.append(text[at:start])
            words.append(word)
            at = start + len(word)
        if at < len(text):
            words.append(text[at:])
        return words
