"""Everything that transformers' fast tokenizers do, ours does too: at character level, on texts where the two agree,
BertTokenizerFast answers the same in every respect."""

import errno
import itertools
import json
import os
import pickle
import shutil

import jieba
import pytest
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from helpers.properties import max_examples
from helpers.versions import reference_from
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from transformers import BatchEncoding, BertTokenizerFast
from transformers.utils.logging import warning_once

from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.tokenization.segmentation import UserDictionaryError
from modeling_roformer.tokenization.vocabulary import VocabularyError, read_vocabulary
from modeling_roformer.tokenization.whole_file import LARGE

FIXTURES = REPOSITORY / "tests" / "fixtures" / "tokenization"
VOCABULARY = str(FIXTURES / "vocab.txt")
CHINESE = "今天的天气非常好，我们去公园散步吧。abc123def 3.14"
WORD_VOCABULARY = read_vocabulary(VOCABULARY)
ENTRIES = (FIXTURES / "vocab_chars.txt").read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture(scope="module")
def ours():
    return RoFormerTokenizer(str(FIXTURES / "vocab_chars.txt"))


@pytest.fixture(scope="module")
def theirs():
    return BertTokenizerFast(vocab={entry: number for number, entry in enumerate(ENTRIES)})


@pytest.fixture(scope="module")
def words():
    return RoFormerTokenizer(str(FIXTURES / "vocab.txt"))


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
@given(
    st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3), st.booleans(), OPTIONS, st.sampled_from(["left", "right"])
)
def test_every_option_as_bert_tokenizer_fast(ours, theirs, texts, pair, options, side):
    ours.truncation_side = theirs.truncation_side = side
    columns = [list(column) for column in zip(*texts, strict=True)][: 1 + pair]
    mine = answer(ours, *columns, **options)
    other = answer(theirs, *columns, **options)
    if mine == "an error" and other != "an error":
        # Where only one of two sequences may be cut and has too little, or a part would repeat itself, ours says so.
        assert options["truncation"] in ("only_first", "only_second")
        return
    assert mine == other


@OLD_TOKENIZERS
@max_examples(100)
@given(st.lists(st.lists(TEXT, max_size=5), min_size=1, max_size=3), OPTIONS)
def test_words_given_by_the_user_as_bert_tokenizer_fast(ours, theirs, texts, options):
    ours.truncation_side = theirs.truncation_side = "right"
    options = {**options, "is_split_into_words": True}
    assert answer(ours, texts, **options) == answer(theirs, texts, **options)


@pytest.mark.parametrize("text", ["今天[MASK]天气", "[CLS][SEP]", " [MASK] [MASK]ab", "[MASK", "[mask]"])
@pytest.mark.parametrize("split", [False, True])
def test_special_tokens_in_the_text(ours, theirs, text, split):
    options = {"return_offsets_mapping": True, "split_special_tokens": split}
    assert answer(ours, text, **options) == answer(theirs, text, **options)


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
def test_added_tokens_as_bert_tokenizer_fast(parts):
    mine, other = _with_added_tokens()
    text = "".join(parts)
    mine, other = mine(text, return_offsets_mapping=True), other(text, return_offsets_mapping=True)
    assert mine.data == other.data
    assert mine.word_ids() == other.word_ids()
    assert mine.tokens() == [token.strip() for token in other.tokens()]  # theirs shows the spaces that lstrip ate


def _with_added_tokens(made={}):  # noqa: B006
    if not made:
        made[0] = RoFormerTokenizer(str(FIXTURES / "vocab_chars.txt"))
        made[1] = BertTokenizerFast(vocab={entry: number for number, entry in enumerate(ENTRIES)})
        # BERT's normalizer puts spaces around Han characters, in added tokens too; cut them afterwards instead.
        backend = made[1].backend_tokenizer
        backend.normalizer = normalizers.BertNormalizer(handle_chinese_chars=False)
        han = pre_tokenizers.Split(Regex("[\u4e00-\u9fff]"), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([han, pre_tokenizers.BertPreTokenizer()])
        for tokenizer in made.values():
            tokenizer("今天")  # so that what was remembered before must be forgotten
            tokenizer.add_tokens(ADDED)
    return made[0], made[1]


# At word level


def test_offsets_cut_the_words_out_of_the_text(words):
    text = "研究生命的起源，１２３ab\tＡＢＣ😀今天的天气"
    batch = words(text, return_offsets_mapping=True)
    pieces = [text[start:end] for start, end in batch.offset_mapping]
    for token, piece in zip(batch.tokens(), pieces, strict=True):
        if token not in ("[CLS]", "[SEP]", "[UNK]"):
            assert token.removeprefix("##") == piece.lower()
    assert "今天" in pieces
    assert "天气" in pieces
    assert "😀" in pieces


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


def test_words_of_the_vocabulary_are_words(words):
    batch = words("今天的天气非常好，abc123。")
    assert batch.tokens()[1:6] == ["今天", "的", "天气", "非常", "好"]
    ids = batch.word_ids()
    assert ids[:6] == [None, 0, 1, 2, 3, 4]
    assert ids[-1] is None
    assert [word for word, _ in itertools.groupby(ids[1:-1])] == list(range(ids[-2] + 1))
    assert batch.word_to_chars(2) == (3, 5)


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("今天的天气非常好，我们去公园散步吧。", None),
        ("我们 use the app 2023年", "我们use the app 2023年"),
        ("hello world 今天", "hello world今天"),
        ("价格 3.14 abc", "价格3.14 abc"),
    ],
)
def test_decode(tmp_path, text, expected):
    entries = (FIXTURES / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    entries += [entry for entry in ["use", "the", "app", "2023", "hello", "world", "14", "abc"] if entry not in entries]
    (tmp_path / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    tokenizer = RoFormerTokenizer.from_pretrained(tmp_path)
    ids = tokenizer(text).input_ids
    expected = text if expected is None else expected
    assert tokenizer.decode(ids, skip_special_tokens=True) == expected
    assert tokenizer.batch_decode([ids, ids], skip_special_tokens=True) == [expected] * 2
    assert tokenizer.convert_tokens_to_string(tokenizer.tokenize(text)) == expected
    tokenizer.save_pretrained(tmp_path / "saved")
    assert RoFormerTokenizer.from_pretrained(tmp_path / "saved").decode(ids, skip_special_tokens=True) == expected


def test_encodings_are_made_when_asked_for(words):
    batch = words(["今天天气", "非常好"], padding=True)
    assert batch.is_fast
    assert len(batch.encodings) == 2
    assert batch[1].ids == batch.input_ids[1]
    assert batch[-1].ids == batch[1].ids == batch.encodings[0:2][1].ids
    assert isinstance(batch, BatchEncoding)
    with pytest.raises(IndexError):
        batch.encodings[2]


# Options


def test_custom_segmenter(tmp_path):
    def first_two(text):
        return [text[:2], *text[2:]]

    tokenizer = RoFormerTokenizer(str(FIXTURES / "vocab.txt"), word_segmentation=first_two)
    assert tokenizer.tokenize("今天的天气非常好。")[:3] == ["今天", "的", "天"]
    spaced = RoFormerTokenizer(str(FIXTURES / "vocab.txt"), word_segmentation=str.split)
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
    tokenizer = RoFormerTokenizer(str(FIXTURES / "vocab.txt"), word_segmentation=lambda text: ["今天", "昨天"])
    with refused(ValueError, "'昨天'", 2):
        tokenizer("今天天气")


def test_vocabulary_without_words_needs_no_asking(tmp_path):
    """Amino acids, the vocabulary of a protein model under model_type roformer."""
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"LAGVSERTIDPKQNFYMHWC"]
    (tmp_path / "vocab.txt").write_text("\n".join(entries) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "RoFormerTokenizer", "do_lower_case": false}')
    tokenizer = RoFormerTokenizer.from_pretrained(tmp_path)
    assert tokenizer.word_segmentation is None
    assert tokenizer.tokenize("Q V [MASK] L") == ["Q", "V", "[MASK]", "L"]


# Warnings


@pytest.fixture
def warned(caplog):
    """The warnings that were given, each once in a process: here, anew."""
    warning_once.cache_clear()
    return lambda: [record.getMessage() for record in caplog.records if "modeling_roformer" in record.name]


@pytest.mark.parametrize("truncation", [True, "longest_first", "only_first"])
def test_truncation_to_no_length_warns(words, warned, truncation):
    text = "今天的天气非常好"
    before = pickle.dumps(words)
    for _ in range(2):
        assert words(text, truncation=truncation).input_ids == words(text).input_ids
        assert words.encode(text, truncation=truncation) == words(text).input_ids
    (warning,) = warned()
    assert_states(warning, f"truncation={truncation!r}", "max_length", "model_max_length")
    assert pickle.dumps(words) == before  # the fingerprint, by which datasets finds its cache


def test_no_warning_where_there_is_a_length_or_no_truncation(words, warned):
    limited = RoFormerTokenizer(VOCABULARY, model_max_length=5)
    assert len(limited("今天的天气非常好", truncation=True).input_ids) == 5
    words("今天", truncation=True, max_length=5)
    words("今天", truncation=True, verbose=False)
    for truncation in (None, False, "do_not_truncate"):
        words("今天", truncation=truncation)
    assert warned() == []


def test_user_words_without_entry_warn(warned):
    lacking = [f"{number}气天" for number in "一二三四五六七"]
    for _ in range(2):
        RoFormerTokenizer(VOCABULARY, user_dict=["今天", *lacking, "天气非 0", lacking[0]])
    (warning,) = warned()
    assert_states(warning, "user_dict", "一气天, 二气天, 三气天, 四气天, 五气天", "2 more")
    assert "六气天" not in warning
    RoFormerTokenizer(VOCABULARY, user_dict=["今天", "气天 5"])
    assert_states(warned()[1], "user_dict", "气天")
    assert "more" not in warned()[1]


def test_user_words_of_the_vocabulary_do_not_warn(warned):
    """Nor those of frequency 0, which jieba is told not to find."""
    tokenizer = RoFormerTokenizer(VOCABULARY, user_dict=["今天", "天气 9000 n", "气天 0", "天气非 9", "天气非 0"])
    assert tokenizer.user_dict
    assert warned() == []


NEVER_FOUND = [
    (["迈克尔·乔丹 9000000"], ["迈克尔·乔丹"], "迈克尔·乔丹退役了"),
    (["<NUM>", "*ST舜船 500 nz"], ["<NUM>", "*ST舜船"], "<NUM>*ST舜船"),
    (["B超 9000000", "b超声 9"], ["B超"], "B超检查，b超检查"),
    (["云计算 5", "Edu Trust认证 2000", "叶  县"], ["Edu Trust认证", "叶  县"], "云计算，Edu Trust认证，叶  县"),
    (["打底裤  5"], ["打底裤 "], "打底裤  5"),
    (
        ["今天\t100", "公园 -5", "公园 3.5 n", "北京\u2028上海"],
        ["今天\t100", "公园 -5", "公园 3.5", "北京\u2028上海"],
        "公园 -5",
    ),
    (["天气 9"], ["天气"], "今天天气"),  # of a frequency lower than that of its characters
    (["天気 9000000", "café 9000000"], ["café"], "天気café"),
]


@pytest.mark.parametrize(("user_dict", "never", "text"), NEVER_FOUND)
def test_words_that_jieba_never_finds_warn(tmp_path, warned, user_dict, never, text):
    """And the ids are those of jieba with its own `load_userdict`."""
    (tmp_path / "user.txt").write_text("\n".join(user_dict), encoding="utf-8", newline="\n")
    for lines in (user_dict, tmp_path / "user.txt"):
        tokenizer = RoFormerTokenizer(VOCABULARY, user_dict=lines)
    (warning,) = [warning for warning in warned() if "never" in warning]
    assert_states(warning, "user_dict", f"never finds {len(never)}", *map(repr, never))
    assert not [word for word in user_dict if word.split()[0] not in " ".join(never) and word.split()[0] in warning]
    cutter = jieba.Tokenizer()
    cutter.FREQ, cutter.total = jieba.Tokenizer.gen_pfdict(cutter.get_dict_file())
    cutter.initialized = True
    cutter.load_userdict(str(tmp_path / "user.txt"))
    assert list(tokenizer._segment(text.lower())) == cutter.lcut(text.lower(), HMM=False)
    tokenizer.save_pretrained(tmp_path / "saved")
    again = RoFormerTokenizer.from_pretrained(tmp_path / "saved")
    assert again(text).input_ids == tokenizer(text).input_ids


def test_the_first_five_words_that_jieba_never_finds_are_named(warned):
    RoFormerTokenizer(VOCABULARY, user_dict=[f"{number}·{number}" for number in "一二三四五六七"] + ["今天"])
    (warning,) = warned()
    assert_states(warning, "7 of the 8", "'五·五'", "2 more")
    assert "六" not in warning


def test_words_that_are_found_after_all_do_not_warn(tmp_path, warned):
    """With capitals, if texts keep theirs, and added tokens."""
    RoFormerTokenizer({**WORD_VOCABULARY, "B超": 2873}, user_dict=["B超 9000000"], do_lower_case=False)
    tokenizer = RoFormerTokenizer(VOCABULARY)
    tokenizer.add_tokens(["迈克尔·乔丹"])
    tokenizer.save_pretrained(tmp_path)
    again = RoFormerTokenizer.from_pretrained(tmp_path, user_dict=["今天", "迈克尔·乔丹"])
    assert again.tokenize("今天迈克尔·乔丹") == ["今天", "迈克尔·乔丹"]
    assert warned() == []


# Bad input


def bad_vocabulary(tmp_path, data):
    (tmp_path / "vocab.txt").write_bytes(data)
    return RoFormerTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"[PAD]\n[CLS]\n[SEP]\n", ["[UNK]"]),
        (b"[PAD]\n[UNK]\na\nb\na\n", ["'a'", 3, 5]),
        (b"[PAD]\n[UNK]\n\xff\xfe\n", ["UTF-8", 3]),
        (b"", ["empty"]),
    ],
)
def test_broken_vocabulary(tmp_path, data, facts):
    with refused(VocabularyError, tmp_path / "vocab.txt", *facts):
        bad_vocabulary(tmp_path, data)


DECORATIONS = ["", "", "", " ", "\t", "\u3000", "\r", " \xa0\t", "\u2028", " 7b", "\tn 3"]


@max_examples(200)
@given(st.lists(st.tuples(*[st.sampled_from(DECORATIONS)] * 2), min_size=12, max_size=12))
def test_entries_are_the_first_fields_of_lines(tmp_path_factory, around):
    """bert4keras' load_vocab is the reference."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"海上明月", "海上", "明月", "##上"]
    before = [space if space.isspace() and space != "\r" else "" for space, _ in around]
    lines = [start + entry + end for start, entry, (_, end) in zip(before, entries, around, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    reference = {}
    for line in lines:
        token = line.split()
        reference[token[0] if token else line.strip()] = len(reference)
    assert list(reference) == entries
    assert read_vocabulary(path) == reference
    tokenizer = RoFormerTokenizer(str(path))
    assert tokenizer("海上明月明", add_special_tokens=False).input_ids == [9, 10, 7]
    tokenizer.save_pretrained(path.parent / "saved")
    assert (path.parent / "saved/vocab.txt").read_text(encoding="utf-8") == "".join(f"{entry}\n" for entry in entries)


def test_a_folder_saved_with_white_space_finds_its_words(tmp_path):
    """Earlier versions wrote vocab.txt's white space into tokenizer.json, and read that."""
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "天", "天气"]
    (tmp_path / "vocab.txt").write_text("\n".join(entries), encoding="utf-8")
    RoFormerTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    saved["model"]["vocab"] = {**{entry: i for i, entry in enumerate(entries[:6])}, "天气 \t6": 6}
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved), encoding="utf-8")
    tokenizer = RoFormerTokenizer.from_pretrained(tmp_path)
    assert tokenizer("天气", add_special_tokens=False).input_ids == [6]
    tokenizer.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again/vocab.txt").read_text(encoding="utf-8").splitlines() == entries


def test_a_second_column_must_be_the_id(tmp_path):
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "天", "天气"]
    numbered = "".join(f"{entry}\t{number}\n" for number, entry in enumerate(entries))
    tokenizer = bad_vocabulary(tmp_path, numbered.encode())
    assert tokenizer("天气天").input_ids == [2, 6, 5, 3]
    with refused(VocabularyError, tmp_path / "vocab.txt", r"'天\t6'", "line 6", 5):
        bad_vocabulary(tmp_path, numbered.replace("天\t5", "天\t6").encode())


def test_lines_of_white_space_are_entries(tmp_path):
    """Entries as in WoBERT's vocabulary, and ## before white space as in Chinese BERT's: no line has another id by them."""
    entries = ["[PAD]", "[UNK]", "", "\u2028", "##\u2028", "\u3000", "[CLS]", "[SEP]", "[MASK]", "天", "天气"]
    tokenizer = bad_vocabulary(tmp_path, "".join(f"{entry}\n" for entry in entries).encode())
    assert tokenizer.get_vocab() == {entry: number for number, entry in enumerate(entries)}
    assert tokenizer("天气天").input_ids == [6, 10, 9, 7]
    tokenizer.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "vocab.txt").read_bytes() == (tmp_path / "vocab.txt").read_bytes()


@pytest.mark.parametrize("entry", ["天 气", "天气 ", "天\n气", "\t天"])
def test_entries_that_a_line_cannot_hold_are_not_written(tmp_path, entry):
    tokenizer = RoFormerTokenizer({**WORD_VOCABULARY, entry: len(WORD_VOCABULARY)})
    with refused(VocabularyError, repr(entry), tmp_path / "vocab.txt"):
        tokenizer.save_vocabulary(tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("{", ["JSON", "line 1"]),
        ("[]", ["JSON object"]),
        pytest.param("[" * 99_999, ["JSON", "recursion"], id="nested"),
        ('{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "a": 2}}}', ["JSON", "'a'"]),
        ('{"model": {"type": "WordPiece"}}', ["model.vocab"]),
        ('{"model": {"type": "BPE", "vocab": {}}, "added_tokens": []}', ["BPE", "WordPiece"]),
        ('{"model": {"type": "WordPiece", "vocab": {"a": 0}}, "added_tokens": []}', ["[UNK]"]),
        ('{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 7}}, "added_tokens": []}', [0, 1]),
    ],
)
def test_broken_tokenizer_json(tmp_path, text, facts):
    (tmp_path / "tokenizer.json").write_text(text)
    with refused(VocabularyError, tmp_path / "tokenizer.json", *facts):
        RoFormerTokenizer(tokenizer_file=str(tmp_path / "tokenizer.json"))


def test_jieba_without_words_is_refused(tmp_path):
    with refused(VocabularyError, "word_segmentation='jieba'", "word_segmentation=None", "vocab_chars.txt"):
        RoFormerTokenizer(str(FIXTURES / "vocab_chars.txt"), word_segmentation="jieba")
    shutil.copy(FIXTURES / "vocab_chars.txt", tmp_path / "vocab.txt")
    (tmp_path / "tokenizer_config.json").write_text('{"word_segmentation": "jieba"}')
    with refused(VocabularyError, "word_segmentation='jieba'", tmp_path / "vocab.txt"):
        RoFormerTokenizer.from_pretrained(tmp_path)
    with refused(VocabularyError, "word_segmentation='jieba'", "vocab_chars.txt"):
        RoFormerTokenizer(str(FIXTURES / "vocab_chars.txt"), user_dict=["今天"])


@pytest.mark.parametrize("chosen", ["Jieba", "pkuseg", 1, False])
def test_unknown_segmentation(chosen):
    with refused(ValueError, "word_segmentation", repr(chosen), "'jieba'", "'auto'"):
        RoFormerTokenizer(str(FIXTURES / "vocab.txt"), word_segmentation=chosen)


@pytest.mark.parametrize(
    ("user_dict", "facts"),
    [
        (["今天", "北京大学\n上海"], ["line 2"]),
        (["北京大学 1" + "0" * 5000], ["line 1", "'北京大学'", 5001]),
        (["今天", None], ["line 2", "None", "str"]),
        (["今天", b"abc"], ["line 2", b"abc", "str"]),
        (7, [7, "path", "list"]),
    ],
)
def test_broken_user_dictionary(user_dict, facts):
    with refused(UserDictionaryError, "user_dict", *facts):
        RoFormerTokenizer(str(FIXTURES / "vocab.txt"), user_dict=user_dict)


def test_broken_user_dictionary_file(tmp_path):
    path = tmp_path / "user.txt"
    with refused(UserDictionaryError, path, os.strerror(errno.ENOENT)):
        RoFormerTokenizer(str(FIXTURES / "vocab.txt"), user_dict=str(path))
    path.write_bytes("今天 3\n".encode("gbk"))
    with refused(UserDictionaryError, path, "UTF-8"):
        RoFormerTokenizer(str(FIXTURES / "vocab.txt"), user_dict=str(path))
    os.truncate(path, LARGE + 1)  # as /dev/zero has, of which all would be read
    with refused(UserDictionaryError, path, f"{LARGE:,} bytes"):
        RoFormerTokenizer(str(FIXTURES / "vocab.txt"), user_dict=str(path))
    path.write_bytes("\ufeff今天 3\r\n\r\n天气非常\r\n\ufeff\r\n\ufeff公园".encode())  # files joined by `cat`, too
    tokenizer = RoFormerTokenizer(str(FIXTURES / "vocab.txt"), user_dict=path)
    assert tokenizer.user_dict == ["今天 3", "天气非常", "公园"]
    with refused(ValueError, "user_dict", "word_segmentation='jieba'"):
        RoFormerTokenizer(str(FIXTURES / "vocab.txt"), user_dict=path, word_segmentation=None)


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
def test_what_is_not_text(words, text, facts):
    with refused(ValueError, *facts):
        words(text)


def test_no_text_at_all(words):
    with pytest.raises(ValueError, match="specify"):  # transformers' own sentence
        words(None)


def test_batches_that_do_not_fit(words):
    with refused(ValueError, "text", 2, "text_pair", 1):
        words(["今天", "天气"], ["好"])
    with refused(TypeError, "text_pair", "str", "list"):
        words(["今天"], "好")
    with refused(ValueError, "text_pair[0]", "int"):
        words(["今天"], [5])
    with refused(ValueError, "max_length=1", 2):
        words("今天", truncation=True, max_length=1)
    with refused(ValueError, "stride=3", "max_length"):
        words("今天的天气非常好", truncation=True, max_length=5, stride=3, return_overflowing_tokens=True)
    with refused(ValueError, "truncation='only_first'", "max_length", "longest_first"):
        words("今", "今天的天气非常好", truncation="only_first", max_length=4)
    with refused(ValueError, "truncation='only_second'", "text_pair"):
        words("今天的天气非常好", truncation="only_second", max_length=4)


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
