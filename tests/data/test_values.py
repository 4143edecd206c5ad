"""Every reader gives the same written value for the same file, whatever its format, its name and its place."""

import datetime
import gzip
import json
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from helpers.messages import refused

from modeling_roformer import data
from modeling_roformer.data import DataError, Texts
from modeling_roformer.serving.onnx_export import agreement
from modeling_roformer.serving.vectors.texts import read_shards
from modeling_roformer.training import Corpus, TrainingError, load_data, load_texts
from modeling_roformer.vocabulary_maker.word_vocabulary import count_batch

FIRST, LAST = "首行", "末行"
REFUSED, BLANK = object(), object()


def text_file(path: Path, value) -> None:
    write(path, f"{FIRST}\n{value}\n{LAST}\n")


def windows_text_file(path: Path, value) -> None:
    write(path, f"{FIRST}\r\n{value}\r\n{LAST}\r\n")


def json_lines(path: Path, value) -> None:
    write(path, "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in (FIRST, value, LAST)))


def json_list(path: Path, value) -> None:
    write(path, json.dumps([{"id": 1, "text": text} for text in (FIRST, value, LAST)], indent=1))


def csv_file(path: Path, value) -> None:
    """Quote every value, as Excel and `csv.QUOTE_ALL` do where they must."""
    rows = "".join('1,"{}"\n'.format(text.replace('"', '""')) for text in (FIRST, value, LAST))
    write(path, "id,text\n" + rows)


def plain_csv_file(path: Path, value) -> None:
    """Write values without quotes, in the middle, as pandas does where it may."""
    write(path, "id,text,more\n" + "".join(f"1,{text},x\n" for text in (FIRST, value, LAST)))


def windows_csv_file(path: Path, value) -> None:
    write(path, "id,text\r\n\r\n" + "".join(f"1,{text}\r\n" for text in (FIRST, value, LAST)))


def tsv_file(path: Path, value) -> None:
    write(path, "text\tid\n" + "".join(f"{text}\t1\n" for text in (FIRST, value, LAST)))


def windows_tsv_file(path: Path, value) -> None:
    write(path, "id\ttext\r\n" + "".join(f"1\t{text}\r\n" for text in (FIRST, value, LAST)))


def parquet_file(path: Path, value) -> None:
    texts = [FIRST, value, LAST]
    if isinstance(value, bytes):
        texts = [FIRST.encode(), value, LAST.encode()]
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2, 3], "text": texts}), path)


def parquet_column(path: Path, value) -> None:
    """Write a column of values that are no strings, with None around them."""
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2, 3], "text": [None, value, None]}), path)


def write(path: Path, text: str) -> None:
    stored = text.encode()
    path.write_bytes(gzip.compress(stored) if path.name.lower().endswith(".gz") else stored)


TEXT_FORMATS = [(text_file, ".txt"), (windows_text_file, ".txt"), (text_file, "")]
JSON_FORMATS = [(json_lines, ".jsonl"), (json_lines, ".ndjson"), (json_lines, ""), (json_list, ".json")]
CSV_FORMATS = [(csv_file, ".csv"), (plain_csv_file, ".csv"), (windows_csv_file, ".csv")]
TSV_FORMATS = [(tsv_file, ".tsv"), (windows_tsv_file, ".tsv")]
PARQUET_FORMATS = [(parquet_file, ".parquet")]
ALL = [*TEXT_FORMATS, *JSON_FORMATS, *CSV_FORMATS, *TSV_FORMATS, *PARQUET_FORMATS]

# The formats, the value that is stored, and the text that every reader gives. REFUSED is an error of all, BLANK an
# error of training and no text of a corpus. `load_data` keeps the types of Parquet, and makes columns of an object.
VALUES = [
    (ALL, "房东退还押金。", "房东退还押金。"),
    (ALL, "01", "01"),
    (ALL, "1.0", "1.0"),
    (ALL, "NA", "NA"),
    (ALL, "null", "null"),
    (ALL, "True", "True"),
    (ALL, "2020-01-01", "2020-01-01"),
    (ALL, " 前后空格 ", " 前后空格 "),
    (ALL, "回车\r在中间", "回车\r在中间"),
    (ALL, "行分隔\u2028符", "行分隔\u2028符"),
    (ALL, " ", BLANK),
    ([*TEXT_FORMATS, *JSON_FORMATS, *TSV_FORMATS, *PARQUET_FORMATS, CSV_FORMATS[0]], '他说："好，', '他说："好，'),
    ([*JSON_FORMATS, *PARQUET_FORMATS, CSV_FORMATS[0]], "第一行\n第二行", "第一行\n第二行"),
    ([*JSON_FORMATS, *PARQUET_FORMATS, CSV_FORMATS[0]], "第一行\r\n第二行", "第一行\r\n第二行"),
    (JSON_FORMATS, "\ud83d", REFUSED),
    ([*JSON_FORMATS, *PARQUET_FORMATS], None, BLANK),
    (JSON_FORMATS, 1, "1"),
    (JSON_FORMATS, 1.0, "1.0"),
    (JSON_FORMATS, 1e5, "100000.0"),
    (JSON_FORMATS, True, "True"),
    (JSON_FORMATS, float("nan"), BLANK),
    (JSON_FORMATS, ["房东退还押金。", "退房时退还。"], REFUSED),
    (JSON_FORMATS, [], REFUSED),
    (JSON_FORMATS, {"de": "gut"}, REFUSED),
    (PARQUET_FORMATS, "房东退还押金。".encode(), "房东退还押金。"),
    (PARQUET_FORMATS, "房东退还押金。".encode("gb18030"), REFUSED),
    ([(parquet_column, ".parquet")], ["房东退还押金。"], REFUSED),
    ([(parquet_column, ".parquet")], {"de": "gut"}, REFUSED),
    ([(parquet_column, ".parquet")], datetime.date(2020, 1, 1), REFUSED),
]
CASES = [
    pytest.param(write, suffix, value, expected, id=f"{write.__name__}{suffix}-{value!r}")
    for formats, value, expected in VALUES
    for write, suffix in formats
]

# Names of the file, and the path that is read.
PLACES = {
    "plain": ("laws{}", "laws{}"),
    "compressed": ("laws{}.gz", "laws{}.gz"),
    "compressed, in capitals": ("laws{}.GZ", "laws{}.GZ"),
    "in a folder": ("folder/laws{}", "folder"),
    "in brackets": ("laws[1]{}", "laws[1]{}"),
    "a folder in brackets": ("f[0-9]*/laws?{}", "f[0-9]*"),
}


def vocabulary(path, cache):
    batches = (batch for file in data.find_files([path]) for batch in data.read_batches(file, ["text"]))
    found = []
    for batch in batches:
        count_batch(batch, True, "text")
        found += [text for _, text in data.batch_texts(batch, "text") if text is not None]
    return found


def embedded(path, cache):
    return [text for shard in read_shards(Texts((str(path),)), 2) for text in shard.texts]


def corpus(path, cache):
    return Corpus([path], cache=cache).documents()["text"][:]


def labelled(path, cache):
    return load_texts(path, {"text": "text"}, cache=cache)["text"][:]


def whole_table(path, cache):
    return load_data(path, cache=cache)["text"][:]


def checked(path, cache):
    return agreement.read_texts(path)


CORPORA = [vocabulary, embedded, corpus, checked]
READERS = [*CORPORA, labelled, whole_table]


@pytest.mark.parametrize(("write", "suffix", "value", "expected"), CASES)
def test_a_value_is_what_is_written(write, suffix, value, expected, tmp_path):
    path = tmp_path / f"laws{suffix}"
    write(path, value)
    others = [] if write is parquet_column else [FIRST, LAST]
    has_own_type = isinstance(value, (bytes, dict)) or write is parquet_column
    for read in [*CORPORA, labelled] if has_own_type else READERS:
        if expected is REFUSED or (expected is BLANK and read is labelled) or (not others and read is labelled):
            with refused(TrainingError if read in (corpus, labelled, whole_table) else DataError, path):
                read(path, tmp_path / "cache")
            continue
        found = read(path, tmp_path / "cache")
        if expected is BLANK:
            assert [text for text in found if text and text.strip()] == others, read.__name__
        else:
            assert found == [others[0], expected, others[1]], read.__name__


@pytest.mark.parametrize(
    ("write", "suffix", "place"),
    [
        pytest.param(write, suffix, place, id=f"{write.__name__}{suffix}-{place}")
        for write, suffix in ALL
        for place in PLACES
        if suffix != ".parquet" or "compressed" not in place  # Parquet is compressed by itself
    ],
)
def test_the_place_of_a_file_does_not_change_its_values(write, suffix, place, tmp_path):
    name, source = (part.format(suffix) for part in PLACES[place])
    path, source = tmp_path / name, tmp_path / source
    path.parent.mkdir(exist_ok=True)
    write(path, "01")
    (tmp_path / f"laws1{suffix}").write_bytes(b"what a pattern would find")
    for read in READERS:
        assert read(source, tmp_path / "cache") == [FIRST, "01", LAST], read.__name__


def test_class_ids_are_read_by_their_names(tmp_path):
    features = datasets.Features(
        text=datasets.ClassLabel(names=["民事", "刑事"]),
        of={"kind": datasets.ClassLabel(names=["甲", "乙"])},
    )
    rows = datasets.Dataset.from_list([{"text": 1, "of": {"kind": 0}}, {"text": 0, "of": {"kind": 1}}], features)
    rows.to_parquet(tmp_path / "laws.parquet")
    for read in [*CORPORA, labelled]:
        assert read(tmp_path / "laws.parquet", tmp_path / "cache") == ["刑事", "民事"]
    assert load_texts(tmp_path / "laws.parquet", ["of.kind"])["of.kind"] == ["甲", "乙"]
    assert load_data(tmp_path / "laws.parquet", cache=tmp_path / "cache").features["text"] == features["text"]


def test_two_columns_of_a_table_with_one_name_are_refused(tmp_path):
    (tmp_path / "laws.csv").write_text("text,id,text\n甲,1,乙\n", encoding="utf-8")
    (tmp_path / "laws.tsv").write_text("text\ttext\n甲\t乙\n", encoding="utf-8")
    table = pyarrow.Table.from_arrays([pyarrow.array(["甲"]), pyarrow.array(["乙"])], ["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "laws.parquet")
    for name in ("laws.csv", "laws.tsv", "laws.parquet"):
        for read in READERS:
            error = TrainingError if read in (corpus, labelled, whole_table) else DataError
            with refused(error, tmp_path / name, "'text'"):
                read(tmp_path / name, tmp_path / "cache")


def test_a_string_of_parquet_that_is_not_utf8_is_refused(tmp_path):
    stored = pyarrow.array([b"\xff\xfe"], pyarrow.binary())
    column = pyarrow.Array.from_buffers(pyarrow.string(), 1, stored.buffers())
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), tmp_path / "laws.parquet")
    with refused(DataError, tmp_path / "laws.parquet", "text", "UTF-8"):
        list(data.read_texts([tmp_path / "laws.parquet"]))


def test_fields_of_objects_are_columns_in_every_format(tmp_path):
    rows = [{"pair": {"de": "gut", "en": "good"}}, {"pair": None}, {"pair": {"de": "schlecht", "en": "bad"}}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.json").write_text(json.dumps(rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "c.parquet")
    for name in ("a.jsonl", "b.json", "c.parquet"):
        found = [text for _, text in data.read_texts([tmp_path / name], "pair.de")]
        assert found == ["gut", "schlecht"]
        with refused(DataError, tmp_path / name, "'pair.fr'", "--field"):
            list(data.read_texts([tmp_path / name], "pair.fr"))


def test_lists_are_read_where_they_are_asked_for(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"query": "押金", "pos": ["房东退还押金。", "退房时退还。"]}, {"query": "工资", "pos": "按月支付。"}]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    found = load_texts(path, {"question": "query", "passage": "pos"}, lists=["passage"])
    assert found["passage"][:] == [["房东退还押金。", "退房时退还。"], ["按月支付。"]]
    assert load_data(path, cache=tmp_path / "cache", lists=["pos"])["pos"][:] == found["passage"][:]
    for passages in ([], ["退", " "], [{}]):
        path.write_text(json.dumps({"query": "押金", "pos": passages}))
        with refused(TrainingError, path, "pos"):
            load_texts(path, {"question": "query", "passage": "pos"}, lists=["passage"])


def test_numbers_of_parquet_are_what_str_makes_of_them(tmp_path):
    table = pyarrow.table({"text": [1, 2], "label": [0.5, 1.0], "is": [True, False]})
    pyarrow.parquet.write_table(table, tmp_path / "laws.parquet")
    found = load_texts(tmp_path / "laws.parquet", ["text", "label", "is"])
    assert found[:] == {"text": ["1", "2"], "label": ["0.5", "1.0"], "is": ["True", "False"]}
