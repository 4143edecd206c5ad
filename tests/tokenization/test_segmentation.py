"""The words are jieba's, over all of Unicode and for every user dictionary; or those of the user's segmenter."""

import json
import sys
from random import Random
from unittest.mock import patch

import jieba
import pytest
from helpers.messages import assert_states, refused
from helpers.properties import max_examples
from helpers.textbook import (
    PLAIN,
    USER_DICT,
    WITH_USER_WORDS,
    make_jieba,
    texts,
    wordy,
)
from helpers.tokenizer_files import VOCABULARY, WORD_VOCABULARY
from hypothesis import example, given
from hypothesis import strategies as st

from modeling_roformer.tokenization import RoFormerTokenizer, segmentation
from modeling_roformer.tokenization.segmentation import (
    JiebaSegmenter,
    _word_and_freq,
    read_user_dict,
    words_to_find,
)

line = st.text(st.sampled_from("今天气非常好的一是abcXY1 0239n\t\r\v\u3000\u2028·*-%\ud800"), max_size=9)
# A byte order mark before white space is left out: jieba keeps that space in the word.
dictionaries = (
    st.lists(line, max_size=8)
    .map("\n".join)
    .flatmap(lambda text: st.sampled_from([text] if text.lstrip("\ud800")[:1].isspace() else [text, "\ufeff" + text]))
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
    path = tmp_path_factory.mktemp("user") / "user.txt"
    path.write_bytes(text.replace("\ud800", "").encode())
    recorder = Recorder()
    recorder.load_userdict(str(path))
    lines = read_user_dict(path)
    assert list(map(_word_and_freq, lines)) == recorder.added
    assert read_user_dict(list(lines)) == lines  # as they are saved


@max_examples(4)
@given(dictionaries, st.lists(wordy, min_size=1, max_size=4))
def test_words_are_found_or_warned_of(text, many):
    """Every word of any user dictionary is found where it stands alone, or is never found, and a warning counts it."""

    lines = text.split("\n")
    cutter = make_jieba()
    cutter.load_userdict(line.strip(" \t\r\v\f").lstrip("\ufeff") for line in lines)
    with patch("modeling_roformer.tokenization.tokenizer.logger.warning_once") as warn:
        tokenizer = RoFormerTokenizer(WORD_VOCABULARY, user_dict=lines)
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

    segment = JiebaSegmenter()
    for start in range(0, 0x30000, 64):
        text = "".join(f"中{chr(code)}国{chr(code)}a{chr(code)}1" for code in range(start, start + 64))
        assert list(segment(text)) == PLAIN.lcut(text, HMM=False)


@max_examples(40)
@given(st.lists(wordy, min_size=1, max_size=8), st.integers(1, 60))
@example(["卖卖卖常𠀀"], 1)
def test_long_texts_are_cut_as_a_whole(many, times):
    """Whatever the parts that a long text is worked off in."""

    text = "".join(many) * times + "\r\n" * times
    text = text * (1 + 12_000 // max(len(text), 1))
    assert list(JiebaSegmenter()(text)) == PLAIN.lcut(text, HMM=False)


# The word with · is never found, but counts twice in the total, the second time with the frequency that it has.
USER_WORDS = ("位置编码", "的 9", "博玛索 12345 n", "博·玛索 900000000", "博·玛索")


@pytest.mark.parametrize("number", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("user_words", [(), USER_WORDS], ids=["plain", "user"])
def test_chains_of_words_are_cut_as_jieba_cuts_them(user_words, number):
    """Words that begin with the last character of the one before, where two paths are often equally likely, or nearly:
    the last digit of every sum has to be jieba's, of the total that all scores are divided by, too."""

    segment, cutter = JiebaSegmenter(read_user_dict(user_words)), make_jieba(user_words)
    random = Random(0)
    words = [word for word, freq in cutter.FREQ.items() if freq and 2 <= len(word) <= 4]
    following = {}
    for word in words:
        following.setdefault(word[0], []).append(word)
    for _ in range(number):
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

    segment = JiebaSegmenter()
    twice = [word for word, freq in PLAIN.FREQ.items() if freq and len(word) == 2 and word[0] == word[1]]
    for word in twice:
        for text in (f"{word}{word[0]}常{character}", f"{character}{word}{word[0]}{character}常"):
            assert list(segment(text)) == PLAIN.lcut(text, HMM=False)


def test_every_word_of_the_dictionary_is_cut_as_jieba_cuts_it():
    segment = JiebaSegmenter()
    words = [word for word, freq in PLAIN.FREQ.items() if freq][::3]
    for start in range(0, len(words), 50):
        text = "".join(words[start : start + 50])
        assert list(segment(text)) == PLAIN.lcut(text, HMM=False), start


# Options


def test_custom_segmenter(tmp_path):
    def first_two(text):
        return [text[:2], *text[2:]]

    tokenizer = RoFormerTokenizer(VOCABULARY, word_segmentation=first_two)
    assert tokenizer.tokenize("今天的天气非常好。")[:3] == ["今天", "的", "天"]
    spaced = RoFormerTokenizer(VOCABULARY, word_segmentation=str.split)
    batch = spaced("今天  天气 非常", return_offsets_mapping=True, add_special_tokens=False)
    assert batch.offset_mapping == [(0, 2), (4, 6), (7, 9)]
    assert batch.word_ids() == [0, 1, 2]
    tokenizer.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["word_segmentation"] == "custom"
    with refused(ValueError, "word_segmentation", "custom"):
        RoFormerTokenizer.from_pretrained(tmp_path)
    again = RoFormerTokenizer.from_pretrained(tmp_path, word_segmentation=first_two)
    assert again("今天的天气非常好。").input_ids == tokenizer("今天的天气非常好。").input_ids


def test_segmenter_that_makes_words_up():
    tokenizer = RoFormerTokenizer(VOCABULARY, word_segmentation=lambda text: ["今天", "昨天"])
    with refused(ValueError, "'昨天'", 2):
        tokenizer("今天天气")


def test_user_dictionary_file(tmp_path):
    path = tmp_path / "user.txt"
    path.write_bytes("今天 3\n".encode("gbk"))
    with refused(ValueError, "user_dict", path, "UTF-8"):
        RoFormerTokenizer(VOCABULARY, user_dict=str(path))
    path.write_bytes("\ufeff今天 3\r\n\r\n天气非常\r\n\ufeff\r\n\ufeff公园".encode())  # files joined by `cat`, too
    tokenizer = RoFormerTokenizer(VOCABULARY, user_dict=path)
    assert tokenizer.user_dict == ["今天 3", "天气非常", "公园"]
    with refused(ValueError, "user_dict", "word_segmentation='jieba'"):
        RoFormerTokenizer(VOCABULARY, user_dict=path, word_segmentation=None)
