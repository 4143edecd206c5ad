"""Tokenization by the textbook, over all of Unicode: jieba itself, then BERT's tokenization in plain Python."""

import unicodedata
import warnings
from functools import cache

from helpers.tokenizer_files import FIXTURES, WORD_VOCABULARY
from hypothesis import strategies as st

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jieba


USER_DICT = (FIXTURES / "user_dict.txt").read_text(encoding="utf-8").splitlines()
ENTRIES = {entry: number for entry, number in WORD_VOCABULARY.items() if entry.split() == [entry]}


@cache
def dictionary():
    """Return jieba's words and their frequencies, and the sum of these."""
    return jieba.Tokenizer.gen_pfdict(jieba.Tokenizer().get_dict_file())


def make_jieba(user_words=()):
    cutter, (frequencies, total) = jieba.Tokenizer(), dictionary()
    cutter.FREQ, cutter.total, cutter.initialized = dict(frequencies), total, True
    if user_words:
        cutter.load_userdict(line.encode() for line in user_words)
    return cutter


PLAIN = make_jieba()
WITH_USER_WORDS = make_jieba(USER_DICT)


def naive(text, cutter, lower=True):
    """Ids of a text without special tokens, as bert4keras' Tokenizer defines them."""
    if lower:
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    if cutter is not None:
        ids = []
        for word in cutter.cut(text, HMM=False):
            ids += [ENTRIES[word]] if word in ENTRIES else naive(word, None, lower)
        return ids
    spaced = ""
    for c in text:
        category, code = unicodedata.category(c), ord(c)
        ascii_sign = code < 128 and not c.isalnum() and 32 < code < 127
        if ascii_sign or category[0] == "P" or is_han(code):
            spaced += f" {c} "
        elif c in " \n\r\t" or category == "Zs":
            spaced += " "
        elif code not in (0, 0xFFFD) and category not in ("Cc", "Cf"):
            spaced += c
    return [number for word in spaced.split() for number in word_piece(word)]


def is_han(code):
    ranges = "4E00-9FFF 3400-4DBF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF F900-FAFF 2F800-2FA1F"
    return any(int(r.split("-")[0], 16) <= code <= int(r.split("-")[1], 16) for r in ranges.split())


def word_piece(word):
    unknown = [ENTRIES["[UNK]"]]
    if len(word) > 200:
        return unknown
    ids, start = [], 0
    while start < len(word):
        ends = [e for e in range(len(word), start, -1) if ("##" * (start > 0) + word[start:e]) in ENTRIES]
        if not ends:
            return unknown
        ids.append(ENTRIES["##" * (start > 0) + word[start : ends[0]]])
        start = ends[0]
    return ids


SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = sorted(word for word, freq in PLAIN.FREQ.items() if freq)[::97]
anything = st.text(st.characters(codec=None), max_size=30)
near = st.text(
    st.sampled_from(
        "今天气非常好长江大桥市长拍卖完 \n\r\t，。abcXYZ019+#&._%-éÉ\u0301İßΣ㐀龥龦鿿豈𠀀😀\u200b\u2028\x00\x1c\x85"
    ),
    max_size=30,
)
wordy = st.lists(
    st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from(sorted(ENTRIES)),
        st.sampled_from([w.split()[0] for w in USER_DICT]),
        near,
    ),
    max_size=12,
).map("".join)
texts = st.one_of(anything, near, wordy).filter(lambda text: not any(token in text for token in SPECIAL))
