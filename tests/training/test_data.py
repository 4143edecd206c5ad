"""Data from files and folders, by `datasets`."""

import gzip
import json
import os
from functools import partial

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from helpers.messages import assert_states, refused

from modeling_roformer.training import TrainingError, encode_labels, load_data, load_texts, split_off

ROWS = [{"text": '他说："好', "label": "01"}, {"text": "NA", "label": "02"}]


def write(path, rows=ROWS):
    """Write rows in the format of the suffix."""
    suffix = path.name.removesuffix(".gz").rpartition(".")[2]
    if suffix == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
        return path
    if suffix == "csv":
        lines = ["text,label", *('"{}",{}'.format(row["text"].replace('"', '""'), row["label"]) for row in rows)]
    elif suffix == "tsv":
        lines = ["text\tlabel", *(f"{row['text']}\t{row['label']}" for row in rows)]
    else:
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    data = "\n".join(lines).encode("utf-8-sig")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet", "csv.gz", "tsv.gz", "jsonl.gz", "00"])
def test_formats(tmp_path, suffix):
    found = load_texts(write(tmp_path / f"rows.{suffix}"), ["text", "label"])
    assert found.to_list() == ROWS


def test_text(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\ufeff明月\n\n几时有", encoding="utf-8")
    assert load_data(path)["text"] == ["明月", "", "几时有"]
    for load in load_data, partial(load_texts, columns=["text"]):
        assert load(path, sample_by="document")["text"] == ["明月\n\n几时有"]
        with refused(TrainingError, "sample_by", "'paragraph'"):
            load(path, sample_by="paragraph")
        with refused(TrainingError, path, "revision"):
            load(path, revision="main")


def test_a_table_without_names(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text('好"\t1\n差\t0', encoding="utf-8")
    found = load_texts(path, {"text": "a", "label": "b"}, column_names=["a", "b"])
    assert found.to_list() == [{"text": '好"', "label": "1"}, {"text": "差", "label": "0"}]


def test_class_ids_become_names(tmp_path):
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["no", "yes"]))
    folder = tmp_path / "data"
    for part, label in ("train", 1), ("test", 0):
        rows = datasets.Dataset.from_list([{"text": "好", "label": label}], features)
        rows.to_parquet(folder / f"{part}.parquet")
    assert load_texts(folder, ["label"])["label"] == ["yes"]
    assert load_texts(folder, ["label"], "test")["label"] == ["no"]


def test_files_of_a_split_have_the_same_classes_in_the_same_order(tmp_path):
    """The ids of the second file would be other classes. Other metadata, such as those of pandas, may differ."""
    names, folder = ["neg", "pos"], tmp_path / "data"
    for number, order in enumerate((names, names[::-1])):
        label = datasets.ClassLabel(names=order)
        features = {"text": datasets.Value("string"), "label": label, "of": datasets.List({"kind": label})}
        row = {"text": "好", "label": "pos", "of": [{"kind": "neg"}]}
        rows = datasets.Dataset.from_list([row], datasets.Features(features))
        rows.to_parquet(folder / f"{number}.parquet")
    assert load_texts(folder, ["label"])["label"] == ["pos", "pos"]
    with refused(TrainingError, folder / "0.parquet", folder / "1.parquet", "label", "['neg', 'pos']"):
        load_data(folder, cache=tmp_path / "cache")
    for number, order in enumerate((names, names[::-1])):  # in a list of objects alone
        features = datasets.Features(of=datasets.List({"kind": datasets.ClassLabel(names=order)}))
        datasets.Dataset.from_list([{"of": [{"kind": "neg"}]}], features).to_parquet(folder / f"{number}.parquet")
    with refused(TrainingError, folder / "0.parquet", folder / "1.parquet", "of.kind"):
        load_data(folder, cache=tmp_path / "cache")
    table = pyarrow.table({"text": ["好"], "label": [1]})
    for number in range(2):
        with_metadata = table.replace_schema_metadata({"pandas": f"{number}"})
        pyarrow.parquet.write_table(with_metadata, folder / f"{number}.parquet")
    assert load_data(folder, cache=tmp_path / "cache")["label"] == [1, 1]
    labelled = table.cast(datasets.Features(text=datasets.Value("string"), label=label).arrow_schema)
    pyarrow.parquet.write_table(labelled, folder / "1.parquet")  # the other file does not say what 1 is
    with refused(TrainingError, folder / "0.parquet", folder / "1.parquet", "label"):
        load_data(folder, cache=tmp_path / "cache")


@pytest.mark.parametrize("inner", [False, True])
def test_a_column_of_a_type_that_datasets_lacks_is_named(inner, tmp_path):
    kind = pyarrow.map_(pyarrow.string(), pyarrow.int64())
    values = pyarrow.array([[("a", 1)]], kind)
    if inner:
        values = pyarrow.StructArray.from_arrays([values], ["of"])
    pyarrow.parquet.write_table(pyarrow.table({"text": ["好"], "counts": values}), tmp_path / "rows.parquet")
    with refused(TrainingError, tmp_path / "rows.parquet", "counts"):
        load_data(tmp_path / "rows.parquet", cache=tmp_path / "cache")
    assert load_texts(tmp_path / "rows.parquet", ["text"])["text"] == ["好"]


def test_values_of_a_table_are_strings_in_later_rows_too(tmp_path):
    """`datasets` takes the types of columns from the first 10,000 rows."""
    path = tmp_path / "rows.csv"
    later = ",10010.5,（2019）京01民终1号", ",,2"
    rows = [f"{text},{n},01" for n, text in enumerate(["好"] * 10_000)] + [f"好{row}" for row in later]
    path.write_text("\n".join(["text,amount,number", *rows]), encoding="utf-8")
    assert load_texts(path, ["text", "number"])["number"][9_999:] == ["01", "（2019）京01民终1号", "2"]
    assert load_data(path)["amount"][9_999:] == ["9999", "10010.5", ""]


def test_fields_of_objects_and_numbers(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"pair": {"de": "gut"}, "label": 1}\n{"pair": {"de": "?"}, "label": "2"}', encoding="utf-8")
    assert load_texts(path, {"text": "pair.de", "label": "label"})[:] == {"text": ["gut", "?"], "label": ["1", "2"]}
    with pytest.raises(TrainingError) as error:
        load_texts(path, ["pair"])
    assert_states(str(error.value), path, "line 1", "pair", "dict")


def test_a_file_that_has_changed_is_read_again_whatever_its_time(tmp_path):
    for text in "一二":
        (tmp_path / "rows.csv").write_text(f"text\n{text}\n", encoding="utf-8")
        os.utime(tmp_path / "rows.csv", (0, 0))
        assert load_data(tmp_path / "rows.csv", cache=tmp_path / "cache")["text"] == [text]


@pytest.mark.parametrize(
    ("name", "content", "states"),
    [
        ("rows.csv", "text,label\n好,\n", ["row 1", "label is empty"]),
        ("rows.jsonl", '{"text": "好", "label": 1}\n{"text": null, "label": 1}', ["line 2", "text is empty"]),
        ("rows.jsonl", '{"text": "好", "label": 1}\n{"text": "的", "label": NaN}', ["line 2", "label is empty"]),
        ("rows.csv", "text,class\n好,1\n", ["no column 'label'", "text, class"]),
        ("rows.csv", "text,label\n", ["no rows"]),
        ("rows.csv", "text,label\n好,1\n好,的,1\n", ["line 3", "saw 3"]),
        ("rows.csv", "text,label\n好,的,1\n好,1\n", ["line 2"]),
        ("rows.jsonl", '{"text": ', ["line 1", "JSON"]),
        ("rows.parquet", "PAR1", ["cannot be read"]),
        ("rows.xlsx", "PK", [".xlsx", "CSV"]),
    ],
)
def test_bad_files(tmp_path, name, content, states):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TrainingError) as error:
        load_texts(path, ["text", "label"])
    assert_states(str(error.value), str(path), *states)


def test_not_utf_8(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes("text,label\n好,1\n".encode("gb18030"))
    with pytest.raises(TrainingError, match=r"rows.csv: not UTF-8; .*GB18030"):
        load_data(path)


@pytest.mark.parametrize("name", ["missing.csv", "folder/missing", "/nowhere/missing"])
def test_a_missing_file_is_not_sought_on_the_hub(name, monkeypatch, tmp_path):
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("sought"))
    with pytest.raises(TrainingError, match="does not exist"):
        load_data(tmp_path / name)


def test_an_unknown_data_set(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(TrainingError, match="you/nothing is neither a file nor a data set"):
        load_data("you/nothing")


def test_a_label_that_training_lacks_is_named_with_its_row(tmp_path):
    (tmp_path / "train.csv").write_text("text,kind\n好,1\n差,0\n", encoding="utf-8")
    (tmp_path / "test.jsonl").write_text('{"text": "好", "kind": 1}\n\n{"text": "的", "kind": 2}\n', encoding="utf-8")
    sources = {"train": tmp_path / "train.csv", "test": tmp_path / "test.jsonl"}
    columns = {"text": "text", "label": "kind"}
    parts = datasets.DatasetDict({part: load_texts(source, columns, part) for part, source in sources.items()})
    with refused(TrainingError, f"{tmp_path / 'test.jsonl'}, line 3: kind", "'2'"):
        encode_labels(parts, sources, column="kind")
    with refused(TrainingError, tmp_path / "test.jsonl", "'2'"):  # its column is called otherwise
        encode_labels(parts, sources)


def test_a_missing_column_names_its_option(tmp_path):
    for name, content in {"a.csv": "text\n好\n", "a.jsonl": '{"text": "好"}', "a.txt": "好\n"}.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        with refused(TrainingError, tmp_path / name, "'kind'", "--label"):
            load_texts(tmp_path / name, {"text": "text", "label": "kind"}, named_by=["--text", "--label"])


def test_too_few_rows_to_split():
    rows = datasets.Dataset.from_list(ROWS)
    kept, taken = split_off(rows, 0.2)
    assert (len(kept), len(taken)) == (1, 1)
    with refused(TrainingError, "20%", 1, "few"):
        split_off(kept, 0.2)


@pytest.mark.parametrize("load", [load_data, partial(load_texts, columns=["text"])])
def test_a_file_that_cannot_be_read_is_named_by_every_loader(tmp_path, load):
    folder, bare = tmp_path / "rows", tmp_path / "bare.jsonl"
    folder.mkdir()
    damaged = folder / "b.parquet"
    damaged.write_bytes(write(folder / "a.parquet").read_bytes()[:-20])
    bare.write_text("{}\n")
    for source, named in (damaged, damaged), (folder, damaged), (bare, bare):
        with refused(TrainingError, named):
            load(source)
