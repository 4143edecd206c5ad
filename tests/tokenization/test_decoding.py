"""Decoding: where spaces are put, rule by rule, and that streamed text is the decoded text."""

import json
import random
import re

import pytest
from helpers.messages import refused
from helpers.paths import SHARED, needs_shared
from helpers.properties import max_examples
from helpers.tokenizer_files import FIXTURES
from hypothesis import given
from hypothesis import strategies as st
from transformers import TextStreamer

from modeling_roformer.tokenization import RoFormerTokenizer

# Texts that come back, by the number of the rule in `join_tokens`.
KEPT = [
    (1, "unaffable"),
    (2, "我们用app2看かな、カナ，ａｂ。"),
    (3, "hello big world 12 ab"),
    (4, "covid-19和bert4keras-v2"),
    (4, "2024-01-02到2024/1/2，-5~10℃，±3%，50%，x=1+2"),
    (4, "他说：“ab”——‘cd’……3·5"),
    (4, "one, don't, it's"),
    (4, '他说"ab"和"cd"'),
    (4, "看http://www.ab.cd/x_y.html?a=b&c=d和ab@cd.ef.gh"),
    (5, "one (two) [six]: three, four; five {ten} 9% of $5. six! one? two"),
    (5, "用pcr(一种方法)和app,abc;12:ab)x"),
    (5, "用one two (three), four，one,two"),
    (6, "3.5, 1.2.3, 12:30:45, 1,200,000"),
    (6, "20, 50, 9"),
]
# Texts whose spaces cannot be told.
CHANGED = [
    (2, "我们 app 好", "我们app好"),
    (3, "мир", "м и р"),
    (4, "a - b / c & d", "a-b/c&d"),
    (4, 'one "two three"', 'one"two three"'),
    (5, "one two.three", "one two. three"),
    (6, "共1, 200", "共1,200"),
]


def vocabulary(texts):
    pieces = ["un", "##aff", "##able"]
    words = [word for text in texts for word in re.findall("[a-z0-9]+|[^a-z0-9 ]", text) if word != "unaffable"]
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "我们", *pieces, *words]
    return {entry: number for number, entry in enumerate(dict.fromkeys(entries))}


@pytest.fixture(scope="module")
def tokenizer():
    made = RoFormerTokenizer(vocabulary([text for _, text, *_ in KEPT + CHANGED]))
    assert made.word_segmentation == "jieba"
    return made


def ids_of(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.unk_token_id not in ids
    return ids


@pytest.mark.parametrize(("rule", "text"), KEPT)
def test_texts_that_come_back(tokenizer, rule, text):
    assert tokenizer.decode(ids_of(tokenizer, text)) == text


@pytest.mark.parametrize(("rule", "text", "expected"), CHANGED)
def test_texts_that_do_not(tokenizer, rule, text, expected):
    assert tokenizer.decode(ids_of(tokenizer, text)) == expected


def test_every_way_to_decode_is_the_same(tokenizer):
    text = "covid-19，3.5"
    ids = ids_of(tokenizer, text)
    framed = tokenizer(text).input_ids
    assert tokenizer.decode(framed) == f"[CLS] {text} [SEP]"
    assert tokenizer.decode(framed, skip_special_tokens=True) == text
    assert tokenizer.decode({"input_ids": ids}) == tokenizer.decode(ids, clean_up_tokenization_spaces=True) == text
    assert tokenizer.batch_decode([framed, ids], skip_special_tokens=True) == [text, text]
    assert tokenizer.decode(tokenizer(text, return_tensors="np").input_ids, skip_special_tokens=True) == [text]
    assert tokenizer.convert_tokens_to_string(tokenizer.tokenize(text)) == text
    assert tokenizer.decode(ids[0]) == "covid"
    assert tokenizer.decode([]) == tokenizer.convert_tokens_to_string([]) == ""
    assert tokenizer.decode([len(tokenizer) + 5, *ids]) == text  # an id that a model has and the vocabulary has not


def test_the_last_token_of_an_encoder_has_no_id_to_decode(tokenizer):
    """lm-eval decodes `eos_token_id`, which only a RoFormer-GPT has."""
    assert tokenizer.eos_token_id is tokenizer.bos_token_id is None
    with refused(ValueError, "token_ids", "eos_token_id", "RoFormer-GPT"):
        tokenizer.decode(tokenizer.eos_token_id)


def test_added_tokens(tokenizer):
    made = RoFormerTokenizer(tokenizer.get_vocab())
    made.add_tokens(["<a>", "..."])
    made.add_tokens(["<s>"], special_tokens=True)
    ids = made("one<a>(two)我们<s>[MASK]...3.5", add_special_tokens=False).input_ids
    assert made.decode(ids) == "one <a> (two)我们<s> [MASK] ... 3.5"
    assert made.decode(ids, skip_special_tokens=True) == "one <a> (two)我们... 3.5"


def test_without_cleaning_up(tokenizer):
    """The plain text, as the saved tokenizer.json gives it, too."""
    ids = ids_of(tokenizer, "covid-19，3.5% (one), http://www.ab.cd")
    plain = "covid - 19，3. 5 % ( one ), http : / / www. ab. cd"
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == plain
    assert tokenizer.batch_decode([ids], clean_up_tokenization_spaces=False) == [plain]
    assert tokenizer.backend_tokenizer.decode(ids) == plain


# Whatever the ids are

TOKENS = [
    "我",
    "，",
    "ab",
    "c",
    "12",
    "345",
    "##f",
    "##9",
    "é",
    "д",
    "μ",
    "℃",
    "“",
    "[MASK]",
    "[CLS]",
    "com",
    "www",
    "s",
]
TOKENS += list(",.;:!?()[]%$&<|\"'-/\\@_=+~#")
IDS = st.lists(st.integers(0, len(TOKENS) - 1), max_size=24)


class Recorder(TextStreamer):
    text = ""

    def on_finalized_text(self, text, stream_end=False):
        self.text += text


@pytest.fixture(scope="module")
def anything():
    entries = ["[UNK]", "[SEP]", "[PAD]", *(token for token in TOKENS)]
    made = RoFormerTokenizer({entry: number for number, entry in enumerate(entries)})
    return made, made.convert_tokens_to_ids(TOKENS)


@max_examples(300)
@given(IDS, st.booleans())
def test_any_ids(anything, numbers, skip):
    """A prefix of the ids gives a prefix of the text, and spaces stand only where the plain text has them."""
    tokenizer, ids = anything
    ids = [ids[number] for number in numbers]
    text = tokenizer.decode(ids, skip_special_tokens=skip)
    for end in range(len(ids)):
        assert text.startswith(tokenizer.decode(ids[:end], skip_special_tokens=skip))
    plain = tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
    left = iter(plain)
    assert all(character in left for character in text)  # a subsequence ...
    assert text.replace(" ", "") == plain.replace(" ", "")  # ... that lacks nothing but spaces


@max_examples(100)
@given(IDS, st.booleans())
def test_streamed_text_is_the_decoded_text(anything, numbers, skip):
    tokenizer, ids = anything
    torch = pytest.importorskip("torch")
    streamer = Recorder(tokenizer, skip_special_tokens=skip)
    for number in numbers:
        streamer.put(torch.tensor([ids[number]]))
    streamer.end()
    assert streamer.text == tokenizer.decode([ids[number] for number in numbers], skip_special_tokens=skip)


def texts_of(path):
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]


def check_that_more_come_back(tokenizer, texts):
    """More texts come back than in plain decoding."""
    ids = tokenizer(texts, add_special_tokens=False).input_ids
    counts = {}
    for clean_up in (False, None):
        decoded = tokenizer.batch_decode(ids, clean_up_tokenization_spaces=clean_up)
        counts[clean_up] = sum(mine.lower() == text.lower() for mine, text in zip(decoded, texts, strict=True))
    assert counts[False] < counts[None]


def test_more_texts_come_back_than_in_plain_decoding(words):
    check_that_more_come_back(words, texts_of(FIXTURES / "texts.jsonl"))


@needs_shared
@pytest.mark.parametrize("folder", ["tokenization", "bert_chinese"])
def test_more_reference_texts_come_back_than_in_plain_decoding(folder):
    tokenizer = RoFormerTokenizer.from_pretrained(SHARED / folder)
    texts = texts_of(SHARED / "tokenization" / "reference.jsonl")
    check_that_more_come_back(tokenizer, random.Random(0).sample(texts, 700))
