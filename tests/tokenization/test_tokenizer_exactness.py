"""Over all of Unicode, our ids are those of the textbook: jieba itself, then BERT's tokenization in plain Python."""

import sys
import unicodedata
import warnings
from random import Random
from unittest.mock import patch

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.properties import max_examples
from hypothesis import example, given
from hypothesis import strategies as st

from modeling_roformer.tokenization import RoFormerTokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jieba

FIXTURES = REPOSITORY / "tests" / "fixtures" / "tokenization"
USER_DICT = (FIXTURES / "user_dict.txt").read_text(encoding="utf-8").splitlines()
VOCABULARY = {
    entry: number for number, entry in enumerate((FIXTURES / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1])
}
ENTRIES = {entry: number for entry, number in VOCABULARY.items() if entry.split() == [entry]}


def make_jieba(user_words=()):
    cutter = jieba.Tokenizer()
    cutter.FREQ, cutter.total = jieba.Tokenizer.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    if user_words:
        cutter.load_userdict(line.encode() for line in user_words)
    return cutter


PLAIN = make_jieba()
WITH_USER_WORDS = make_jieba(USER_DICT)
TOKENIZER = RoFormerTokenizer(str(FIXTURES / "vocab.txt"))
CHARACTERS = RoFormerTokenizer(str(FIXTURES / "vocab.txt"), word_segmentation=None)
USER = RoFormerTokenizer(str(FIXTURES / "vocab.txt"), user_dict=USER_DICT)
CASED = RoFormerTokenizer(str(FIXTURES / "vocab.txt"), do_lower_case=False)


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


@max_examples(700)
@given(texts)
@example("\r\n\n\r \x0b\x0c\x1c\x85\u2028\u2029\u3000")
@example("a" * 201 + "今天" + "a" * 200)
@example("c++c#at&t.net3d打印t恤")
@example("\ud800今天\udfff")
@example("ΑΣ ΣΑΣ今天Σ")
def test_ids_of_any_text(text):
    assert TOKENIZER(text, add_special_tokens=False).input_ids == naive(text, PLAIN)
    assert CHARACTERS(text, add_special_tokens=False).input_ids == naive(text, None)
    assert USER(text, add_special_tokens=False).input_ids == naive(text, WITH_USER_WORDS)
    assert CASED(text, add_special_tokens=False).input_ids == naive(text, PLAIN, lower=False)


@max_examples(300)
@given(texts)
@example("e\u0301\u0302a한글İ今天")
def test_offsets_of_any_text(text):
    for tokenizer in (TOKENIZER, CHARACTERS):
        batch = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        encoding = batch[0]
        assert encoding.ids == batch.input_ids
        assert encoding.offsets == batch.offset_mapping
        last = 0
        for token, (start, end) in zip(encoding.tokens, batch.offset_mapping, strict=True):
            assert 0 <= start < end <= len(text)
            assert start >= last or start >= last - 1  # two tokens may come from one character
            last = end
            if token != "[UNK]":
                piece = unicodedata.normalize("NFD", text[start:end].lower()).replace("ς", "σ")
                marks = ("Mn",) if token in piece else ("Mn", "Cc", "Cf")
                kept = "".join(c for c in piece if unicodedata.category(c) not in marks)
                assert token.removeprefix("##").replace("ς", "σ") in kept
        numbers = encoding.word_ids
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(len(set(numbers))))


@max_examples(8)
@given(
    st.lists(
        st.tuples(
            st.text(st.sampled_from("今天气非常好的一是abc1"), min_size=1, max_size=4),
            st.one_of(st.none(), st.integers(0, 10**9)),
        ),
        min_size=1,
        max_size=6,
    ),
    st.lists(wordy, min_size=1, max_size=4),
)
def test_any_user_dictionary(words, many):
    lines = [word if freq is None else f"{word} {freq}" for word, freq in words]
    cutter = jieba.Tokenizer()
    cutter.FREQ, cutter.total, cutter.initialized = dict(PLAIN.FREQ), PLAIN.total, True
    for word, freq in words:
        cutter.add_word(word, freq)
    tokenizer = RoFormerTokenizer(VOCABULARY, user_dict=lines)
    for text in [*many, *(word for word, _ in words)]:
        if not any(token in text for token in SPECIAL):
            assert tokenizer(text, add_special_tokens=False).input_ids == naive(text, cutter)


line = st.text(st.sampled_from("今天气非常好的一是abcXY1 0239n\t\r\v\u3000\u2028·*-%\ud800"), max_size=9)
# A byte order mark before white space is left out: jieba keeps that space in the word.
dictionaries = (
    st.lists(line, max_size=8)
    .map("\n".join)
    .flatmap(lambda text: st.sampled_from([text, "\ufeff" + text] if not text[:1].isspace() else [text]))
)


class Recorder(jieba.Tokenizer):
    """The words and frequencies that jieba's load_userdict adds."""

    def __init__(self):
        super().__init__()
        self.initialized, self.added = True, []

    def add_word(self, word, freq=None, tag=None):
        self.added.append((word, freq and int(freq)))


@max_examples(500)
@given(dictionaries)
@example("云计算 5\nEdu Trust认证 2000\n叶  县\n打底裤  5\n凱特琳 nz\n今天 -5\n今天\t100\n3 n\n \n")
def test_lines_of_a_user_dictionary_are_read_as_jieba_reads_them(tmp_path_factory, text):
    from modeling_roformer.tokenization.segmentation import _word_and_freq, read_user_dict

    path = tmp_path_factory.mktemp("user") / "user.txt"
    path.write_bytes(text.replace("\ud800", "").encode())
    recorder = Recorder()
    recorder.load_userdict(str(path))
    lines = read_user_dict(path)
    assert list(map(_word_and_freq, lines)) == recorder.added
    assert read_user_dict(list(lines)) == lines  # as they are saved


@max_examples(8)
@given(dictionaries, st.lists(wordy, min_size=1, max_size=4))
def test_words_are_found_or_warned_of(text, many):
    """Every word of any user dictionary is found where it stands alone, or is never found, and a warning counts it."""
    from modeling_roformer.tokenization.segmentation import words_to_find

    lines = text.split("\n")
    cutter = jieba.Tokenizer()
    cutter.FREQ, cutter.total, cutter.initialized = dict(PLAIN.FREQ), PLAIN.total, True
    cutter.load_userdict(line.strip(" \t\r\v\f").lstrip("\ufeff") for line in lines)
    with patch("modeling_roformer.tokenization.tokenizer.logger.warning_once") as warn:
        tokenizer = RoFormerTokenizer(VOCABULARY, user_dict=lines)
    words = words_to_find(tokenizer.user_dict)
    found = [word for word in words if tokenizer._normalizer(word) == word and cutter.lcut(word, HMM=False) == [word]]
    never = set(words) - set(found)
    stated = [call.args[0] for call in warn.call_args_list if "never" in call.args[0]]
    assert len(stated) == bool(never)
    if never:
        assert_states(stated[0], f"{len(never)} of the {len(words)}")
    for text in [*many, *(f"{a}{word}{b}" for word in never for a in many for b in many)]:
        text = tokenizer._normalizer(text)
        cut = cutter.lcut(text, HMM=False)
        assert list(tokenizer._segment(text)) == cut
        assert not never.intersection(cut)


@pytest.fixture
def without_rjieba(monkeypatch):
    from modeling_roformer.tokenization import segmentation

    monkeypatch.setitem(sys.modules, "rjieba", None)
    segmentation._cutter.cache_clear()
    yield segmentation.JiebaSegmenter
    segmentation._cutter.cache_clear()


def test_any_text_is_cut_as_jieba_cuts_it_without_rjieba(without_rjieba):
    plain, user = without_rjieba(), without_rjieba(tuple(USER_DICT))

    @max_examples(300)
    @given(texts)
    def check(text):
        assert list(plain(text)) == PLAIN.lcut(text, HMM=False)
        assert list(user(text)) == WITH_USER_WORDS.lcut(text, HMM=False)

    check()


def test_every_character_is_cut_as_jieba_cuts_it():
    """jieba and rjieba agree on the characters of words."""
    from modeling_roformer.tokenization.segmentation import JiebaSegmenter

    segment = JiebaSegmenter()
    for start in range(0, 0x30000, 64):
        text = "".join(f"中{chr(code)}国{chr(code)}a{chr(code)}1" for code in range(start, start + 64))
        assert list(segment(text)) == PLAIN.lcut(text, HMM=False)


@max_examples(40)
@given(st.lists(wordy, min_size=1, max_size=8), st.integers(1, 60))
@example(["卖卖卖常𠀀"], 1)
def test_long_texts_are_cut_as_a_whole(many, times):
    """Whatever the parts that a long text is worked off in."""
    from modeling_roformer.tokenization.segmentation import JiebaSegmenter

    text = "".join(many) * times + "\r\n" * times
    text = text * (1 + 12_000 // max(len(text), 1))
    assert list(JiebaSegmenter()(text)) == PLAIN.lcut(text, HMM=False)


@pytest.mark.parametrize("user_words", [(), ("位置编码", "的 9", "博玛索 12345 n")], ids=["plain", "user"])
def test_chains_of_words_are_cut_as_jieba_cuts_them(user_words):
    """Words that begin with the last character of the one before, where two paths are often equally likely, or nearly:
    the last digit of every sum has to be jieba's, of the total that all scores are divided by, too."""
    from modeling_roformer.tokenization.segmentation import JiebaSegmenter, read_user_dict

    segment, cutter = JiebaSegmenter(read_user_dict(user_words)), make_jieba(user_words)
    random = Random(0)
    words = [word for word, freq in cutter.FREQ.items() if freq and 2 <= len(word) <= 4]
    following = {}
    for word in words:
        following.setdefault(word[0], []).append(word)
    for _ in range(10_000):
        chain = [random.choice(words)]
        while len(chain) < 16:
            word = random.choice(following.get(chain[-1][-1], words))
            chain.append(random.choice([word, word[:-1], word + word[-1]]))
        text = "".join(chain)
        assert list(segment(text)) == cutter.lcut(text, HMM=False)


@pytest.mark.parametrize(
    "character", ["㐀", "䶿", "鿖", "鿿", "豈", "﫿", "𠀀", "𪛟", "𪜀", "𮯯", "丽", "𯨟", "𯿿", "🀄"]
)
def test_equally_likely_paths_are_told_apart_as_jieba_does(character):
    """The last digit of a sum decides between two orders of the same words, and later words are part of the sum."""
    from modeling_roformer.tokenization.segmentation import JiebaSegmenter

    segment = JiebaSegmenter()
    twice = [word for word, freq in PLAIN.FREQ.items() if freq and len(word) == 2 and word[0] == word[1]]
    for word in twice:
        for text in (f"{word}{word[0]}常{character}", f"{character}{word}{word[0]}{character}常"):
            assert list(segment(text)) == PLAIN.lcut(text, HMM=False)


def test_every_word_of_the_dictionary_is_cut_as_jieba_cuts_it():
    from modeling_roformer.tokenization.segmentation import JiebaSegmenter

    segment = JiebaSegmenter()
    words = [word for word, freq in PLAIN.FREQ.items() if freq][::3]
    for start in range(0, len(words), 50):
        text = "".join(words[start : start + 50])
        assert list(segment(text)) == PLAIN.lcut(text, HMM=False), start


@pytest.mark.parametrize("n", [1, 1 << 17])
def test_memory_is_bounded(monkeypatch, n):
    from modeling_roformer.tokenization import wordpiece

    monkeypatch.setattr(wordpiece, "_CACHED_WORDS", n)
    tokenizer = RoFormerTokenizer(VOCABULARY)
    for text in WORDS[:200]:
        assert tokenizer(text * 2, add_special_tokens=False).input_ids == naive(text * 2, PLAIN)
    assert len(tokenizer._word_piece.ids) <= n
