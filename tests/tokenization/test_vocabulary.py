"""A vocab.txt is read as bert4keras reads it; files that would give wrong ids are refused."""

import json

import pytest
from helpers.messages import refused
from helpers.properties import max_examples
from helpers.tokenizer_files import WORD_VOCABULARY
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.tokenization.vocabulary import VocabularyError, read_vocab_txt

# Bad input


def tokenizer_of(tmp_path, data):
    (tmp_path / "vocab.txt").write_bytes(data)
    return RoFormerTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"[PAD]\n[CLS]\n[SEP]\n", ["[UNK]"]),
        (b"[PAD]\n[UNK]\na\nb\na\n", ["'a'", 3, 5]),
        (b"[PAD]\n[UNK]\n\xff\xfe\n", ["UTF-8", 3]),
        (b"", ["[UNK]"]),
    ],
)
def test_broken_vocabulary(tmp_path, data, facts):
    with refused(VocabularyError, tmp_path / "vocab.txt", *facts):
        tokenizer_of(tmp_path, data)


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
    assert read_vocab_txt(path) == reference
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


def test_lines_of_white_space_are_entries(tmp_path):
    """Entries as in WoBERT's vocabulary, and ## before white space as in Chinese BERT's: no line's id changes."""
    entries = ["[PAD]", "[UNK]", "", "\u2028", "##\u2028", "\u3000", "[CLS]", "[SEP]", "[MASK]", "天", "天气"]
    tokenizer = tokenizer_of(tmp_path, "".join(f"{entry}\n" for entry in entries).encode())
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
        ('{"model": {"type": "WordPiece"}}', ["WordPiece", "vocabulary"]),
        ('{"model": {"type": "BPE", "vocab": {}}, "added_tokens": []}', ["BPE", "WordPiece"]),
        ('{"model": {"type": "WordPiece", "vocab": {"a": 0}}, "added_tokens": []}', ["[UNK]"]),
        ('{"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 7}}, "added_tokens": []}', [0, 1]),
    ],
)
def test_broken_tokenizer_json(tmp_path, text, facts):
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    with refused(VocabularyError, tmp_path / "tokenizer.json", *facts):
        RoFormerTokenizer(tokenizer_file=str(tmp_path / "tokenizer.json"))
