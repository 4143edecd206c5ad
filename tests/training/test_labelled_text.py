"""Labelled texts: forms of files, and errors."""

import gzip
import json

import pytest
from helpers.messages import refused

from modeling_roformer.tokenization.vocabulary_maker.corpus import CorpusError
from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.finetuning.labelled_text import read_labelled

TEXTS, LABELS = ["很好", "太差了", "不错", "失望", "一般"], ["10", "9", "10", "9", "1"]


def write(path, lines):
    with gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def json_lines(records):
    return [json.dumps(record, ensure_ascii=False) for record in records]


FORMS = {
    "text first.tsv": [f"{text}\t{label}" for text, label in zip(TEXTS, LABELS, strict=True)],
    "label first.txt": [f"{label}\t{text}" for text, label in zip(TEXTS, LABELS, strict=True)],
    "blank lines.tsv.gz": [f"{text}\t{label}\r\n" for text, label in zip(TEXTS, LABELS, strict=True)],
    "headings.tsv": ["label\ttext", *(f"{label}\t{text}" for text, label in zip(TEXTS, LABELS, strict=True))],
    "strings.jsonl": json_lines({"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)),
    "numbers.jsonl.gz": json_lines({"label": int(y), "text": x, "id": 1} for x, y in zip(TEXTS, LABELS, strict=True)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form, tmp_path):
    found = read_labelled(write(tmp_path / form, FORMS[form]))
    assert found.features["label"].names == ["1", "9", "10"]  # numbers in their order
    assert found["text"][:] == TEXTS and found.features["label"].int2str(found["label"][:]) == LABELS


def test_other_fields_and_a_data_set(tmp_path):
    records = [{"review": text, "stars": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "train.jsonl", json_lines(records))
    write(tmp_path / "folder" / "test.jsonl", json_lines(records[:2]))
    found = read_labelled(tmp_path / "folder", text="review", label="stars")
    assert found["text"][:] == TEXTS and found.features["label"].names == ["1", "9", "10"]
    names = found.features["label"].names
    assert read_labelled(tmp_path / "folder", "test", "review", "stars", names)["label"][:] == [2, 1]
    with refused(TrainingError, tmp_path / "folder"):
        read_labelled(tmp_path / "folder", "validation", "review", "stars", names)


def test_classes_of_a_data_set_keep_their_names(tmp_path):
    found = read_labelled(write(tmp_path / "a.tsv", ["很好\t好", "太差\t差"]))
    (tmp_path / "parquet").mkdir()
    found.to_parquet(tmp_path / "parquet" / "train.parquet")
    again = read_labelled(tmp_path / "parquet")
    assert again.features["label"].names == found.features["label"].names and again[:] == found[:]


@pytest.mark.parametrize("lines", [["太差\t差"], ["差\t太差"]])
def test_known_labels_say_which_side_they_are_on(lines, tmp_path):
    """There are as many labels as texts."""
    assert read_labelled(write(tmp_path / "a.tsv", lines), names=["差", "好"])[:] == {"text": ["太差"], "label": [0]}


REFUSED = {
    "empty.tsv": ([], ["no labelled text"]),
    "empty.jsonl": ([""], ["no labelled text"]),
    "headings.tsv": (["text\tlabel"], ["no labelled text"]),
    "space.tsv": (["很好\t1", "", "太差 0"], ["line 3", "TAB"]),
    "tabs.tsv": (["很\t好\t1"], ["line 1", "2 TAB"]),
    "alike.tsv": (["很好\t1", "太差\t1"], ["label", "'1'"]),
    "no label.tsv": (["很好\t1", "太差\t"], ["line 2", "label"]),
    "no text.tsv": (["很好\t1", "太差\t0", "\t0"], ["line 3", "text"]),
    "list.jsonl": (["[1]"], ["line 1", "object"]),
    "broken.jsonl": (['{"text": '], ["line 1", "JSON"]),
    "fields.jsonl": (
        ['{"text": "很好", "label": 1}', '{"text": "太差", "stars": 1}'],
        ["line 2", "'label'", "text, stars", "--label"],
    ),
    "content.jsonl": (
        ['{"content": "很好", "label": 1}'],
        ["line 1", "'text'", "content, label", "--text"],
    ),
    "number.jsonl": (['{"text": 1, "label": 1}'], ["line 1", "'text'", "string"]),
    "share.jsonl": (
        ['{"text": "好", "label": 0.5}'],
        ["line 1", "'label'", "string", "integer"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_learned_from(name, tmp_path):
    lines, facts = REFUSED[name]
    error = CorpusError if name in ("list.jsonl", "broken.jsonl") else TrainingError
    with refused(error, name, *facts):
        read_labelled(write(tmp_path / name, lines))


def test_a_label_that_training_lacks(tmp_path):
    path = write(tmp_path / "test.tsv", ["很好\t1", "太差\t0", "一般\t2"])
    with refused(TrainingError, path, "line 3", "'2'", "0, 1"):
        read_labelled(path, "test", names=["0", "1"])


def test_files_that_are_not_there_or_not_text(tmp_path):
    for name in "missing.tsv", str(tmp_path / "missing"):
        with refused(TrainingError, name, "does not exist"):
            read_labelled(name)
    (tmp_path / "gbk.tsv").write_bytes("很好\t1\n".encode("gb18030"))
    with refused(CorpusError, "gbk.tsv", "line 1", "UTF-8"):
        read_labelled(tmp_path / "gbk.tsv")
