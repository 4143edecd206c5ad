"""JSON Lines under any name but that of a text: every reader takes the field, and none the raw line as a text."""

import gzip
import json
import os
from pathlib import Path
from threading import Thread

import pyarrow.parquet
import pytest
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY

from modeling_roformer.conversion import convert
from modeling_roformer.data import DataError, Texts
from modeling_roformer.serving.onnx_export.agreement import read_texts
from modeling_roformer.serving.vectors.texts import read_shards
from modeling_roformer.training import TrainingError, load_data, load_texts
from modeling_roformer.training.pretraining.documents import read_documents

TEXTS = ["今天天气很好。", "明月几时有", "租客要求退还押金"]
NAMES = ["a.jsonl", "a.json", "a.ndjson", "a.NDJSON.gz", "wiki_00", "wiki_00.gz", "a.data"]


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def json_lines(path: Path, before: str = "", field: str = "text") -> Path:
    rows = ({"id": str(n), "url": "https://zh.wikipedia.org/wiki?curid=1", field: text} for n, text in enumerate(TEXTS))
    return write(path, before + "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def documents(path):
    return [text for _, text in Texts((str(path),)) if text is not None]


def embedded(path):
    return [text for shard in read_shards(Texts((str(path),), batch_bytes=4), 10) for text in shard.texts]


def training(path):
    return load_texts(path, ["text"])["text"][:]


def pretraining(path):
    return read_documents([path], cache=path.parent / "cache")["text"][:]


def embedded_by_document(path):
    return [
        text
        for shard in read_shards(Texts((str(path),), sample_by="document", batch_bytes=4), 10)
        for text in shard.texts
    ]


READERS = [documents, embedded, embedded_by_document, training, pretraining, read_texts]


def test_a_file_that_is_one_text_is_the_same_in_any_number_of_chunks(tmp_path):
    for number, text in enumerate(["一\n二\n\n三\n", "一\n二\n\n三"]):
        assert embedded_by_document(write(tmp_path / f"{number}.txt", text)) == [text]


@pytest.mark.parametrize("read", READERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_the_field_is_read_under_every_name(read, name, tmp_path):
    for before in ("", "\ufeff", "\n \r\n"):
        assert read(json_lines(tmp_path / name, before)) == TEXTS


@pytest.mark.parametrize(
    "text",
    [
        "{例}今天\n",
        "{\n",
        '{"今天"}\n',
        "{} 今天\n",
        "[1]\n参考\n",
        '今天\n{"text": "天气"}\n',
        "3\n",
        '"今天"\n',
        "\n\n",
        "{" * 100_000 + "\n",
    ],
)
def test_text_stays_text(text, tmp_path):
    """An object in a later line, braces and numbers are text. So is everything in a file called text."""
    lines = [line for line in text.split("\n") if line]
    assert documents(write(tmp_path / "a.txt", text)) == lines
    path = write(tmp_path / "wiki_00", text)
    if text == "{\n":
        with refused(DataError, path, "line 1", "JSON"):
            documents(path)
    else:
        assert documents(path) == lines


@pytest.mark.parametrize("name", ["a.txt", "a.text", "a.TXT.gz"])
@pytest.mark.parametrize("read", READERS, ids=lambda f: f.__name__)
def test_json_in_a_file_called_text_is_text_and_is_reported(read, name, tmp_path, capfd):
    lines = [json.dumps({"text": text}) for text in TEXTS]
    path = write(tmp_path / name, "\n".join(lines))
    assert read(path) == (["\n".join(lines)] if read is embedded_by_document else lines)
    (report,) = [line for line in capfd.readouterr().err.splitlines() if str(path) in line]
    assert_states(report, ".jsonl")
    write(path, "[1]\n2\n")
    assert read(path) and str(path) not in capfd.readouterr().err  # no JSON that could be read


def test_a_field_of_a_file_called_text_is_refused_if_it_holds_json(run, tmp_path):
    path = write(tmp_path / "a.txt", '[{"body": "今天"}]')
    with refused(DataError, path, "'body'", ".jsonl"):
        list(Texts((str(path),), "body"))
    with refused(TrainingError, path, "'label'", ".jsonl"):
        load_texts(path, ["text", "label"])
    code, _, err = run("vocab", path, "--output", tmp_path / "vocab.txt", "--field", "body")
    assert code == 1 and not (tmp_path / "vocab.txt").exists()
    assert_states(err, path, "'body'", ".jsonl")


@pytest.mark.parametrize("number", ["1e400", "-1e400", "Infinity", "-Infinity"])
def test_infinite_numbers_of_json_are_refused(number, tmp_path):
    """1e400 and 1e500 would be one label. NaN is a missing value."""
    lines = '{"text": "今天", "label": NaN}\n\n{"text": "天气", "label": NUMBER}'.replace("NUMBER", number)
    path = write(tmp_path / "a.jsonl", lines)
    for read in (lambda: list(Texts((str(path),), "label")), lambda: load_data(path, cache=tmp_path / "cache")):
        with pytest.raises((DataError, TrainingError)) as error:
            read()
        assert_states(error.value, path, "line 3", "label")
    path = write(tmp_path / "b.json", '[{"text": "今天"}, {"text": NUMBER}]'.replace("NUMBER", number))
    with refused(TrainingError, path, "row 2", "text"):
        load_texts(path, ["text"])
    with refused(TrainingError, path, "row 2", "text"):
        load_texts(path, ["text"], lists=["text"])


@pytest.mark.parametrize(
    "text",
    [
        '{\n"text": 1}',
        '{"id": 1,\n"text": "今天"}',
        '{"text": "今\n{"text": "今天"}\n',
        '[{"text": "今天"},\n{"text": "今',
        '[{"text": "今天"}, 3]',
        '[{"text": "今天"}]\n[{"text": "今天"}]',
    ],
)
def test_json_that_is_damaged_or_has_no_objects_is_refused(text, tmp_path):
    for name in ("wiki_00", "a.json"):
        path = write(tmp_path / name, text)
        for read in (documents, embedded, read_texts):
            with refused(DataError, path):
                read(path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_field_that_appears_twice_is_refused(name, tmp_path):
    lines = ['{"text": "今天"}', '{"text": "天气", "of": {"label": 1, "label": 2}}']
    path = write(tmp_path / name, "\n".join(lines) if name == "a.jsonl" else f"[{','.join(lines)}]")
    for read in (documents, load_data, training):
        with pytest.raises((DataError, TrainingError)) as error:
            read(path)
        assert_states(error.value, path, "'label'", *["line 2"] * (name == "a.jsonl"))


@pytest.mark.parametrize("read", READERS, ids=lambda f: f.__name__)
def test_a_list_is_read_by_every_reader(read, tmp_path):
    for name in ("a.json", "a.jsonl", "wiki_00", "a.json.gz"):
        for indent in (None, 1):
            path = write(tmp_path / name, json.dumps([{"text": text} for text in TEXTS], indent=indent))
            assert read(path) == TEXTS


def test_a_line_that_is_no_object_is_named(tmp_path):
    path = json_lines(tmp_path / "wiki_00")
    write(path, path.read_text() + "今天\n")
    with refused(DataError, path, "line 4", "JSON"):
        documents(path)


@pytest.mark.parametrize("read", [training, pretraining], ids=lambda f: f.__name__)
def test_other_fields_may_differ_in_later_lines(read, tmp_path):
    """`datasets` takes the types of fields from the first 10 MiB."""
    first = {"more": "文" * (4 << 20), "court": None, "laws": [], "result": {"of": 1}}
    last = {"court": "一", "laws": ["二"], "result": {"of": 1, "to": 2}, "judge": "三"}
    rows = [{"text": text, **others} for text, others in zip(TEXTS, [first, last, {}], strict=True)]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    assert read(path) == TEXTS


def test_the_commands_read_the_field(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    convert(REPOSITORY / "tests" / "fixtures" / "legacy" / "word", tmp_path / "model")
    json_lines(tmp_path / "wiki_00", field="body")
    assert run("embed", "model", "wiki_00", "vectors", "--field", "body", "--keep-text")[0] == 0
    found = pyarrow.parquet.read_table(tmp_path / "vectors" / "000000.parquet")
    assert found["text"].to_pylist() == TEXTS
    code, ranked, _ = run("rank", "wiki_00", "vectors", "--field", "body", "--top-k", "1")
    assert code == 0 and ranked.count("1.000") == 3 and "curid" not in ranked  # each query is a text of the corpus


def test_a_vocabulary_of_a_pipe_has_no_names_of_fields(run, tmp_path):
    """A pipe is read once, so its content cannot be looked at before."""
    rows = json_lines(tmp_path / "a.jsonl", field="body").read_bytes()
    os.mkfifo(tmp_path / "pipe")
    Thread(target=(tmp_path / "pipe").write_bytes, args=[rows], daemon=True).start()
    options = ("--output", tmp_path / "vocab.txt", "--field", "body", "--min-count", "1")
    assert run("vocab", tmp_path / "pipe", *options)[0] == 0
    entries = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert "押金" in entries and not {"cur", "curid", "url", "id", "https"} & {e.removeprefix("##") for e in entries}


def test_documents_that_are_held_out(run_here, tmp_path):
    json_lines(tmp_path / "wiki_00", field="body")
    assert run_here("hold_out.py", tmp_path, "wiki_00", "output", "--field", "body", "--share", "0.6")[0] == 0
    train, held_out = [documents(tmp_path / "output" / half / "wiki_00.jsonl.gz") for half in ("train", "held_out")]
    assert train and held_out and sorted(train + held_out) == sorted(TEXTS)
