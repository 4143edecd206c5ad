"""Cutting normalized text into the words that are looked up whole in the vocabulary.

jieba without its hidden Markov model is a search for the likeliest path through the words of its dictionary. rjieba
holds the same dictionary and the same search in Rust, an order of magnitude faster: the two agree on every text (the
tests compare them over all of Unicode) but for one with rare characters, which is given to rjieba in jieba's blocks. What
rjieba cannot take, lone surrogates and words that the user gave frequency 0, goes through jieba's own code.
"""

import functools
import os
import re
import warnings
from itertools import chain

from .whole_file import LARGE, read_bytes

# jieba 0.42.1 cuts a text into these blocks first; only what matches is looked up in the dictionary.
_WORD_BLOCK = re.compile("([\u4e00-\u9fd5a-zA-Z0-9+#&\\._%\\-]+)")
# rjieba's blocks hold these, too. A path that goes on has another sum of logarithms, whose last digit decides where two
# paths are of the same words in another order (卖|卖卖 and 卖卖|卖).
_ONLY_RJIEBA = re.compile("[\u3400-\u4dbf\u9fd6-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SPACE_BLOCK = re.compile(r"(\r\n|\s)")
_USER_LINE = re.compile(r"^(?P<word>.+?)(?: (?P<freq>[0-9]{1,100}))?(?: (?P<tag>[a-z]+))?$")

# A long text is cut part by part, so that the words of one are still in the processor's cache when they are looked up.
# Where a character outside the blocks ends a part, its words are what they are in the whole text.
_PART = 4096
_END_OF_PART = re.compile("\r\n|[^\u4e00-\u9fd5a-zA-Z0-9+#&\\._%\\-]")

# Stands for frequency that no word has. It lies outside the blocks above, so it is never found in a text.
_NOWHERE = "\U0010fffd"

# jieba's dictionary has one word twice, and its total counts it twice; rjieba's total does not.
_COUNTED_TWICE = 3


class UserDictionaryError(ValueError):
    """The user dictionary cannot be read; the message says which line is wrong."""


def read_user_dict(user_dict):
    """Lines of a jieba user dictionary ("word", "word 100", "word 100 n"), checked.

    Args:
        user_dict: path of such a file in UTF-8, or a list of such lines; None for none.

    Returns:
        tuple of str.
    """
    if user_dict is None:
        return ()
    if isinstance(user_dict, (str, os.PathLike)):
        source = f"The user dictionary {os.fspath(user_dict)}"
        try:
            lines = read_bytes(user_dict, LARGE).decode("utf-8-sig").split("\n")
        except UnicodeDecodeError:
            raise UserDictionaryError(f"{source} is not UTF-8.") from None
        except ValueError as error:
            raise UserDictionaryError(f"{source} cannot be read: {error}.") from None
        except OSError as error:
            raise UserDictionaryError(f"{source} cannot be read: {error.strerror}.") from None
    elif isinstance(user_dict, (list, tuple)):
        source, lines = "The user dictionary", user_dict
    else:
        raise UserDictionaryError(f"The user dictionary is {user_dict!r}, neither a path nor a list of lines.")
    words = []
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise UserDictionaryError(f"{source} holds {line!r} in place {number}, which is not a str.")
        line = line.strip()
        if not line:
            continue
        match = _USER_LINE.match(line)  # None where a line of a list holds a line break
        if match is None or len(match["word"].split()) > 1:
            raise UserDictionaryError(
                f"{source}, line {number}: {line!r} is not a word, or a word, a whole number and a tag in small "
                "letters, with one space between them."
            )
        words.append(line)
    return tuple(words)


def words_to_find(user_words):
    """The words of lines from `read_user_dict`, without those of frequency 0, which jieba is not to find."""
    matches = map(_USER_LINE.match, user_words)
    return [match["word"] for match in matches if match["freq"] is None or int(match["freq"]) > 0]


@functools.lru_cache(maxsize=4)
def _jieba(user_words):
    """jieba's own tokenizer with the user's words, shared by all that use the same ones. Nobody else's words, and no
    cache file: `jieba.dt` and the temporary folder stay as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import jieba
        except ImportError:
            raise ImportError(
                "Word segmentation needs jieba: pip install jieba (or rjieba, which is faster)."
            ) from None
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = jieba.Tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    for line in user_words:
        match = _USER_LINE.match(line)
        word, freq = match["word"], match["freq"]
        freq = tokenizer.suggest_freq(word) if freq is None else int(freq)
        tokenizer.FREQ[word] = freq
        tokenizer.total += freq
        for end in range(1, len(word)):
            tokenizer.FREQ.setdefault(word[:end], 0)
    return tokenizer


@functools.lru_cache(maxsize=4)
def _rjieba(user_words):
    """The `cut` of an rjieba that equals `_jieba(user_words)`, or None where there is none."""
    try:
        import rjieba

        words = rjieba.Jieba()
    except (ImportError, AttributeError):
        return None
    surplus = _COUNTED_TWICE  # every score is divided by the total, to the last digit
    if user_words:
        exact = _jieba(user_words)
        base = _jieba(())
        changed = {_USER_LINE.match(line)["word"] for line in user_words}
        if exact.total >= 2**53 or any(exact.FREQ[word] == 0 for word in changed):
            return None  # jieba passes over a word of frequency 0, and takes logarithms of any integer; rjieba may not
        surplus += exact.total - base.total
        for word in changed:
            words.add_word(word, exact.FREQ[word], None)
            surplus -= exact.FREQ[word] - base.FREQ.get(word, 0)  # jieba counts the old frequency of a word given anew
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
    """`jieba.cut(text, HMM=False)`, to the letter.

    Args:
        user_words: lines from `read_user_dict`.

    Calling it with a text gives an iterable of words, which joined give the text. The dictionary is read at the first
    call, and is left out of pickles.
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
            if not block:
                continue
            if _WORD_BLOCK.match(block):
                if self._cut is not None:
                    words.extend(self._cut(block, False))
                else:
                    words.extend(_jieba(self.user_words).cut(block, HMM=False))
            else:
                for piece in _SPACE_BLOCK.split(block):
                    words.extend([piece] if _SPACE_BLOCK.match(piece) else piece)
        return words


# A Han character and white space always end a word; what stands between is left to basic tokenization.
_UNIT = re.compile("[\u4e00-\u9fff \n\r\t]|[^\u4e00-\u9fff \n\r\t]+")


def cut_characters(text):
    """Cut into the smallest parts that basic tokenization can treat one by one, for vocabularies without words."""
    return _UNIT.findall(text)


class CustomSegmenter:
    """A user's own way to cut: any callable that takes the normalized text and gives its words, in order.

    Characters between the words may be left out; a word that does not follow in the text is an error.
    """

    def __init__(self, segment):
        self.segment = segment

    def __call__(self, text):
        words, at = [], 0
        for word in self.segment(text):
            start = text.find(word, at) if isinstance(word, str) else -1
            if start < 0:
                raise ValueError(
                    f"The segmenter gave {word!r}, which does not stand in the text after its first {at} characters."
                )
            if start > at:
                words.append(text[at:start])
            words.append(word)
            at = start + len(word)
        if at < len(text):
            words.append(text[at:])
        return words
