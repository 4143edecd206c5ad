"""Whatever fast tokenizers do, ours does: where the two agree on characters, BertTokenizerFast answers the same."""

import copy
import itertools

import pytest
from helpers.messages import refused
from helpers.properties import max_examples
from helpers.tokenizer_files import CHARACTER_VOCABULARY, entries_of
from helpers.versions import reference_from
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from transformers import BatchEncoding, BertTokenizerFast

from modeling_roformer.tokenization import RoFormerTokenizer


@pytest.fixture(scope="module")
def theirs():
    return BertTokenizerFast(vocab=entries_of(CHARACTER_VOCABULARY))


SIDE = st.sampled_from(["left", "right"])
TEXT = st.text(st.sampled_from("今天气非常好，。我们ABCabz019 .é㐀"), max_size=24)
OPTIONS = st.fixed_dictionaries(
    {
        "add_special_tokens": st.booleans(),
        "padding": st.sampled_from([False, "longest", "max_length"]),
        "truncation": st.sampled_from([False, "longest_first", "only_first", "only_second"]),
        "max_length": st.integers(5, 30),
        "stride": st.integers(0, 1),
        "pad_to_multiple_of": st.sampled_from([None, 8]),
        "padding_side": st.sampled_from([None, "left", "right"]),
        "return_overflowing_tokens": st.booleans(),
        "return_special_tokens_mask": st.booleans(),
        "return_offsets_mapping": st.booleans(),
        "return_length": st.booleans(),
    }
)


def everything(batch):
    """All that a BatchEncoding says."""
    seen = {key: [list(row) if isinstance(row, list) else row for row in rows] for key, rows in batch.items()}
    for number, encoding in enumerate(batch.encodings):
        seen[f"encoding {number}"] = [
            encoding.ids,
            encoding.type_ids,
            encoding.tokens,
            encoding.offsets,
            encoding.attention_mask,
            encoding.special_tokens_mask,
            encoding.word_ids,
            encoding.sequence_ids,
            encoding.n_sequences,
            [part.ids for part in encoding.overflowing],
        ]
        seen[f"words {number}"] = [batch.word_ids(number), batch.sequence_ids(number), batch.tokens(number)]
        for token in range(len(encoding.ids)):
            if encoding.sequence_ids[token] is not None:
                seen[f"chars {number} {token}"] = batch.token_to_chars(number, token)
        for sequence, place in itertools.product(range(encoding.n_sequences), range(26)):
            seen[f"at {number} {sequence} {place}"] = [
                batch.char_to_token(number, place, sequence),
                batch.char_to_word(number, place, sequence),
                encoding.word_to_tokens(place, sequence),
            ]
    return seen


def answer(tokenizer, *texts, **options):
    # A BaseException: where max_length leaves too little, `tokenizers` panics.
    try:
        return everything(tokenizer(*texts, **options))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "an error"


OLD_TOKENIZERS = reference_from("tokenizers", "0.23.3", "it numbers the words of texts truncated on the left from 0")


@OLD_TOKENIZERS
@max_examples(250)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3), st.booleans(), OPTIONS, SIDE, SIDE)
def test_every_option_as_bert_tokenizer_fast(characters, theirs, texts, pair, options, truncation_side, padding_side):
    characters.truncation_side = theirs.truncation_side = truncation_side
    characters.padding_side = theirs.padding_side = padding_side
    columns = [list(column) for column in zip(*texts, strict=True)][: 1 + pair]
    mine = answer(characters, *columns, **options)
    other = answer(theirs, *columns, **options)
    if mine == "an error" and other != "an error":
        # Ours refuses if only one of two sequences may be truncated and is too short.
        assert options["truncation"] in ("only_first", "only_second")
        return
    assert mine == other


@OLD_TOKENIZERS
@max_examples(100)
@given(st.lists(st.lists(TEXT, max_size=5), min_size=1, max_size=3), OPTIONS)
def test_words_given_by_the_user_as_bert_tokenizer_fast(characters, theirs, texts, options):
    characters.truncation_side = theirs.truncation_side = "right"
    options = {**options, "is_split_into_words": True}
    assert answer(characters, texts, **options) == answer(theirs, texts, **options)


@pytest.mark.parametrize("text", ["今天[MASK]天气", "[CLS][SEP]", " [MASK] [MASK]ab", "[MASK", "[mask]"])
@pytest.mark.parametrize("split", [False, True])
def test_special_tokens_in_the_text(characters, theirs, text, split):
    options = {"return_offsets_mapping": True, "split_special_tokens": split}
    assert answer(characters, text, **options) == answer(theirs, text, **options)


@pytest.fixture(scope="module")
def with_added_tokens():
    made = RoFormerTokenizer(CHARACTER_VOCABULARY), BertTokenizerFast(vocab=entries_of(CHARACTER_VOCABULARY))
    # BERT's normalizer puts spaces around Han characters, in added tokens too; cut them afterwards instead.
    backend = made[1].backend_tokenizer
    backend.normalizer = normalizers.BertNormalizer(handle_chinese_chars=False)
    han = pre_tokenizers.Split(Regex("[\u4e00-\u9fff]"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([han, pre_tokenizers.BertPreTokenizer()])
    for tokenizer in made:
        tokenizer("今天")  # so that what was remembered before must be forgotten
        tokenizer.add_tokens(ADDED)
    return made


ADDED = [
    AddedToken("<a>", lstrip=True, normalized=False),
    AddedToken("<b>", rstrip=True, normalized=False, special=True),
    AddedToken("天气", normalized=True),
    AddedToken("Ém", normalized=True),
    AddedToken("one", single_word=True),
]


@max_examples(150)
@given(
    st.lists(
        st.sampled_from(["<a>", "<b>", "天气", "今天", "EM", "ém", "one", "ones", " ", "  ", "a", "[MASK]", "，"]),
        max_size=9,
    )
)
def test_added_tokens_as_bert_tokenizer_fast(with_added_tokens, parts):
    mine, other = (tokenizer("".join(parts), return_offsets_mapping=True) for tokenizer in with_added_tokens)
    assert mine.data == other.data
    assert mine.word_ids() == other.word_ids()
    assert mine.tokens() == [token.strip() for token in other.tokens()]  # theirs shows the spaces that lstrip ate


# At word level


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e\u0301a今天", [(0, 1), (2, 3), (3, 5)]),  # a combining accent
        ("İ今天", [(0, 1), (1, 3)]),  # two characters in lower case
        ("한今天", None),  # three when decomposed
        ("今\u0301天", [(0, 1), (2, 3)]),
        ("ab\x00cd今天", None),
        ("ＡＢ今天", None),
    ],
)
def test_offsets_where_normalization_changes_lengths(words, text, expected):
    batch = words(text, return_offsets_mapping=True, add_special_tokens=False)
    offsets = batch.offset_mapping
    if expected is not None and len(offsets) == len(expected):
        assert offsets == expected
    assert offsets[-1][1] == len(text)
    if "今天" in text:
        assert text[slice(*offsets[-1])] == "今天"
    assert all(0 <= start < end <= len(text) for start, end in offsets)
    assert offsets == sorted(offsets)
    place = text.index("天")
    assert batch.char_to_token(place) == len(offsets) - 1
    assert batch.token_to_chars(len(offsets) - 1).end == len(text)


def test_windows_of_a_long_text(words):
    text = "今天的天气非常好，" * 40
    batch = words(
        ["天气好吗"],
        [text],
        truncation="only_second",
        max_length=32,
        stride=8,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=True,
    )
    seen = set()
    for number, (offsets, ids) in enumerate(zip(batch.offset_mapping, batch.input_ids, strict=True)):
        assert len(ids) == 32
        assert batch.overflow_to_sample_mapping[number] == 0
        for token, sequence in enumerate(batch.sequence_ids(number)):
            if sequence == 1:
                seen.update(range(*offsets[token]))
                assert words.convert_ids_to_tokens(ids[token]) == text[slice(*offsets[token])]
    assert seen == set(range(len(text)))


def test_tensors(words):
    torch = pytest.importorskip("torch")
    batch = words(["今天", "今天的天气非常好"], padding=True, return_tensors="pt", return_offsets_mapping=True)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == batch["token_type_ids"].shape
    assert batch["offset_mapping"].shape == (*batch["input_ids"].shape, 2)
    assert batch["input_ids"].dtype == torch.long
    assert words("今天", return_tensors="np")["input_ids"].shape == (1, 3)
    padded = words.pad([words("今天"), words("今天的天气非常好")], return_tensors="pt")
    assert torch.equal(padded["input_ids"], batch["input_ids"])


def test_encodings_are_made_when_asked_for(words):
    batch = words(["今天天气", "非常好"], padding=True)
    assert batch.is_fast
    assert len(batch.encodings) == 2
    assert batch[1].ids == batch.input_ids[1]
    assert batch[-1].ids == batch[1].ids == batch.encodings[0:2][1].ids
    assert isinstance(batch, BatchEncoding)
    with pytest.raises(IndexError):
        batch.encodings[2]


def test_encodings_are_those_of_the_call(words):
    tokenizer, labelled, pair = copy.deepcopy(words), ["今天", "天气", "非常"], [["我们"], ["公园"]]
    batches = tokenizer(labelled, is_split_into_words=True), tokenizer([pair], is_split_into_words=True)
    text = tokenizer("今天<e>")
    del labelled[1:], pair[0][:]
    pair[1] += labelled
    tokenizer.add_tokens(["天气", "<e>"])
    assert batches[0].word_ids() == [None, 0, 1, 2, None]
    assert batches[1].tokens() == ["[CLS]", "我们", "[SEP]", "公园", "[SEP]"]
    assert text.tokens() == tokenizer.convert_ids_to_tokens(text.input_ids)
    assert len(text.tokens()) > len(tokenizer("今天<e>").tokens())


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (["今天", None], ["text[1]", "NoneType", "str"]),
        (b"abc", ["text", "bytes", "str"]),
        (["今天", 5], ["text[1]", "int", "str"]),
        ([["今天", 5]], ["text[0][1]", "int", "str"]),
        (float("nan"), ["text", "float", "str"]),
    ],
)
def test_an_input_that_is_no_text_is_refused(words, text, facts):
    with refused(ValueError, *facts):
        words(text)


def test_no_text_at_all(words):
    with pytest.raises(ValueError, match="specify"):  # transformers' own sentence
        words(None)


def test_batches_that_do_not_fit(words):
    with refused(TypeError, "text_pair", "str", "list"):
        words(["今天"], "好")
    with refused(ValueError, "text_pair[0]", "int"):
        words(["今天"], [5])
    with refused(ValueError, "text", 2, "text_pair", 1):
        words(["今天", "天气"], ["好"])
    with refused(ValueError, "truncation='longest_first'", [1], -1, "max_length"):
        words("今天", truncation=True, max_length=1)
    with refused(ValueError, "truncation='only_first'", "max_length", "longest_first"):
        words("今", "今天的天气非常好", truncation="only_first", max_length=4)
    with refused(ValueError, "truncation='only_second'", [5], 2, "max_length"):
        words("今天的天气非常好", truncation="only_second", max_length=4)
    with refused(ValueError, "stride=3", "max_length"):
        words("今天的天气非常好", truncation=True, max_length=5, stride=3, return_overflowing_tokens=True)


def test_nothing_is_something(words):
    assert words([]).input_ids == []
    assert words("").tokens() == ["[CLS]", "[SEP]"]
    assert words("今天", "").tokens() == ["[CLS]", "今天", "[SEP]", "[SEP]"]
    assert words(["今天"], [""]).input_ids[0] == words("今天", "").input_ids
    assert words([""]).input_ids == [words("").input_ids]
    assert words([], is_split_into_words=True).tokens() == ["[CLS]", "[SEP]"]


@pytest.mark.parametrize("text", ["今\ud800天", "\udc80[MASK]今天\ud83d", "a\x00b", "\x00", "\ufeff今天\ufffd"])
def test_characters_that_are_none(words, text):
    batch = words([text, "今天"], return_offsets_mapping=True, padding=True)
    assert batch[0].ids == batch.input_ids[0]
    if "[MASK]" in text:
        assert words.mask_token_id in batch.input_ids[0]
