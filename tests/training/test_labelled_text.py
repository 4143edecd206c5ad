"""Labelled texts: forms of files, columns that are guessed, and errors."""

import gzip
import json
import os

import datasets
import pandas
import pyarrow.parquet
import pytest
from helpers.messages import refused

from modeling_roformer.tokenization.vocabulary_maker.corpus import CorpusError
from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.finetuning.labelled_text import read_labelled

TEXTS, LABELS = ["很好", "太差了", "不错", "失望", "一般"], ["10", "9", "10", "9", "1"]
FRAME = pandas.DataFrame({"text": TEXTS, "label": LABELS})
NUMBERS = FRAME.astype({"label": int})


def write(path, lines, encoding="utf-8"):
    if isinstance(lines, pandas.DataFrame):
        lines.to_parquet(path)
        return path
    text = "\n".join(lines) + "\n" if isinstance(lines, list) else lines
    with gzip.open(path, "wb") if path.suffix == ".gz" else open(path, "wb") as file:
        file.write(text.encode(encoding))
    return path


def json_lines(records):
    return [json.dumps(record, ensure_ascii=False) for record in records]


def lines(form):
    return [form.format(text, label) for text, label in zip(TEXTS, LABELS, strict=True)]


FORMS = {
    "text first.tsv": lines("{}\t{}"),
    "label first.txt": lines("{1}\t{0}"),
    "blank lines.tsv.gz": lines("{}\t{}\r\n"),
    "headings.tsv": ["label\ttext", *lines("{1}\t{0}")],
    "strings.jsonl": json_lines(FRAME.to_dict("records")),
    "numbers.jsonl.gz": json_lines({"label": int(y), "text": x, "id": 1} for x, y in zip(TEXTS, LABELS, strict=True)),
    "mixed.json": json_lines(
        {"label": y if i % 2 else int(y), "text": x} for i, (x, y) in enumerate(zip(TEXTS, LABELS, strict=True))
    ),
    "plain.csv": ["text,label", *lines("{},{}")],
    "three columns.csv": ["id,label,text", *lines("7,{1},{0}")],
    "windows.csv": "\ufeff" + "".join(f"{line}\r\n" for line in ["text,label", *lines('"{}","{}"')]),
    "blank lines.csv.gz": ["text, label", "", *lines("{}, {}\n")],
    "other names.csv": ["comment,stars", *lines("{},{}")],
    "one known name.csv": ["stars,content", *lines("{1},{0}")],
    "empty columns.csv": ["text,label,,", *lines("{},{},,")],
    "strings.parquet": FRAME,
    "numbers.parquet": NUMBERS,
    "floats.parquet": FRAME.astype({"label": float}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form, tmp_path):
    found = read_labelled(write(tmp_path / form, FORMS[form]))
    assert found.features["label"].names == ["1", "9", "10"]  # numbers in their order
    assert found["text"][:] == TEXTS and found.features["label"].int2str(found["label"][:]) == LABELS


def test_values_of_a_csv_file_stay_as_they_are(tmp_path):
    """NA is no missing value, 01 is not 1, and a field in quotes has any character."""
    rows = 'text,label\n"两行\n""引号"", 逗号",01\nNA,NA\nnull,01\n3.0,NA\n'
    found = read_labelled(write(tmp_path / "a.csv", rows))
    assert found["text"][:] == ['两行\n"引号", 逗号', "NA", "null", "3.0"]
    assert found.features["label"].int2str(found["label"][:]) == ["01", "NA", "01", "NA"]


def test_quotes_in_a_tsv_file_belong_to_the_text(tmp_path):
    assert read_labelled(write(tmp_path / "a.tsv", ['"好\t1', "差\t0"]))["text"][:] == ['"好', "差"]


@pytest.mark.parametrize(
    ("name", "first"), [("a.csv", "id,stars,review"), ("a.tsv", "id\tstars\treview"), ("b.tsv", "id\tstars\tnotes")]
)
def test_columns_by_name(name, first, tmp_path):
    """In a TSV file too, whose first line is then no text. One of the names may be a usual one."""
    form = "7,{1},{0}" if name.endswith("csv") else "7\t{1}\t{0}"
    text = first.replace("\t", ",").split(",")[2]
    found = read_labelled(write(tmp_path / name, [first, *lines(form)]), text=text, label="stars")
    assert found["text"][:] == TEXTS
    if text == "review":
        assert read_labelled(tmp_path / name, label="stars")["text"][:] == TEXTS


def test_a_folder_is_a_data_set(tmp_path):
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


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "folder/train.csv", "folder/train.parquet"])
def test_a_file_that_has_changed_is_read_again(name, tmp_path):
    """Even if it has the time and the size that it had: no cache compares by them."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    place = tmp_path / name.partition("/")[0]
    for texts in ["好"], ["差"]:
        frame = pandas.DataFrame({"text": [*texts, "一般"], "label": ["1", "0"]})
        if name.endswith("parquet"):
            frame.to_parquet(path)
        else:
            path.write_text(
                frame.to_csv(index=False) if name.endswith("csv") else "\n".join(json_lines(frame.to_dict("records")))
            )
        os.utime(path, (1e9, 1e9))
        assert read_labelled(place)["text"][:] == [*texts, "一般"]


def test_classes_of_a_data_set_keep_their_names(tmp_path):
    found = read_labelled(write(tmp_path / "a.tsv", ["很好\t好", "太差\t差"]))
    (tmp_path / "parquet").mkdir()
    found.to_parquet(tmp_path / "parquet" / "train.parquet")
    for place in tmp_path / "parquet", tmp_path / "parquet" / "train.parquet":
        again = read_labelled(place)
        assert again.features["label"].names == found.features["label"].names and again[:] == found[:]


def test_a_data_set_without_labels(tmp_path):
    """The test splits of GLUE have -1, which is no class."""
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["差", "好"]))
    (tmp_path / "set").mkdir()
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, -1, -1, 0]}, features=features)
    rows.to_parquet(tmp_path / "set" / "train.parquet")
    with refused(TrainingError, tmp_path / "set", "row 3", "'label'", "1 more"):
        read_labelled(tmp_path / "set")


@pytest.mark.parametrize("lines", [["太差\t差"], ["差\t太差"]])
def test_known_labels_say_which_side_they_are_on(lines, tmp_path):
    """There are as many labels as texts."""
    assert read_labelled(write(tmp_path / "a.tsv", lines), names=["差", "好"])[:] == {"text": ["太差"], "label": [0]}


LABEL_FORMS = {
    "mixed.csv": ["text,label", "一,1", "二,1.0", "三, 2", "四,2.0 "],
    "mixed.tsv": ["text\tlabel", "一\t1", "二\t1.0", "三\t 2", "四\t2.0 "],
    "mixed.jsonl": json_lines({"text": x, "label": y} for x, y in zip("一二三四", [1, 1.0, " 2", "2.0 "], strict=True)),
    "strings.jsonl": json_lines(
        {"text": x, "label": y} for x, y in zip("一二三四", ["1", "1.00", "2", "2\u3000"], strict=True)
    ),
    "strings.parquet": pandas.DataFrame({"text": [*"一二三四"], "label": ["1", "1.0", "2 ", "2"]}),
    "gaps.parquet": pandas.DataFrame({"text": [*"一二三四"], "label": [1.0, 1.0, 2.0, 2.0]}),
}


def as_data_set(path, frame):
    """Store a table as a folder that `datasets` reads by its name, with strings or with classes."""
    path.mkdir()
    frame.to_parquet(path / "train.parquet")
    return path


@pytest.mark.parametrize("form", LABEL_FORMS)
def test_one_rule_for_labels(form, tmp_path):
    found = read_labelled(write(tmp_path / form, LABEL_FORMS[form]))
    assert found.features["label"].names == ["1", "2"] and found["label"][:] == [0, 0, 1, 1]


@pytest.mark.parametrize("names", [None, ["坏", "好"]])
def test_the_same_rule_in_every_format(names, tmp_path):
    """Spaces are no part of a name, in data sets by name and their classes either; 01 and 1.5 stay as they are."""
    texts, labels = (
        [*"一二三四五六"],
        ["好", "好 ", "\t坏", "坏", "01" if names is None else "好", "1.5" if names is None else "坏"],
    )
    frame = pandas.DataFrame({"text": texts, "label": labels})
    classes = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=sorted({*labels})))
    (tmp_path / "classes").mkdir()
    datasets.Dataset.from_dict(frame.to_dict("list"), classes).to_parquet(tmp_path / "classes" / "train.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[["text", "label"]].assign(label=[label.strip("\t") for label in labels]).to_csv(
        tmp_path / "a.tsv", index=False, sep="\t"
    )
    frame.to_parquet(tmp_path / "a.parquet")
    write(tmp_path / "a.jsonl", json_lines(frame.to_dict("records")))
    expected = [label.strip() for label in labels]
    places = ["a.csv", "a.tsv", "a.parquet", "a.jsonl", "classes", as_data_set(tmp_path / "strings", frame)]
    for place in places:
        found = read_labelled(tmp_path / place, names=names)
        assert found.features["label"].int2str(found["label"][:]) == expected, place


PAIR_ROWS = [
    ("开初婚未育证明怎么弄", "初婚未育情况证明怎么开", "1"),
    ("谁有她们的照片", "姑娘们的照片", "0"),
    ("这腰带是什么牌子", "护腰带什么牌子好", "0"),
]


@pytest.mark.parametrize("name", ["lcqmc.tsv", "lcqmc.csv", "lcqmc.jsonl", "lcqmc.parquet", "plain.tsv"])
def test_sentence_pairs(name, tmp_path):
    columns = ["sentence1", "sentence2", "label"]
    frame = pandas.DataFrame(PAIR_ROWS, columns=columns)
    if name.endswith("parquet"):
        frame.to_parquet(tmp_path / name)
    elif name.endswith("jsonl"):
        write(tmp_path / name, json_lines(frame.to_dict("records")))
    else:
        separator = "," if name.endswith("csv") else "\t"
        frame.to_csv(tmp_path / name, index=False, sep=separator, header=name.startswith("lcqmc"))
    if name.startswith("plain"):
        columns = ["column 1", "column 2", "column 3"]
    with refused(TrainingError, name, *columns[:2], "--text", "--label"):
        read_labelled(tmp_path / name)
    if name.startswith("lcqmc"):
        with refused(TrainingError, "--text 'sentence1' --text-pair 'sentence2'"):
            read_labelled(tmp_path / name)
    for label in (None, columns[2]):
        found = read_labelled(tmp_path / name, text=columns[0], text_pair=columns[1], label=label)
        assert found.to_dict() == {
            "text": [row[0] for row in PAIR_ROWS], "text_pair": [row[1] for row in PAIR_ROWS], "label": [1, 0, 0]
        }  # fmt: skip
    with refused(TrainingError, name, "no column"):
        read_labelled(tmp_path / name, text=columns[0], text_pair="x")


def test_pairs_need_a_column_of_labels(tmp_path):
    path = write(tmp_path / "a.csv", ["sentence1,sentence2", "一,二", "三,四"])
    with refused(TrainingError, path, "--label"):
        read_labelled(path, text="sentence1", text_pair="sentence2")


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["今天,中性", "很好,正面", "太差,负面", "不错,正面"], None),
        (["今天,3", "很好,1", "太差,0", "不错,1"], None),
        (["中性,今天", "正面,很好", "负面,太差", "正面,不错"], None),
        (["今天,中性", "很好,正面"], ["中性", "正面", "负面"]),
    ],
)
def test_the_first_row_is_not_lost(lines, names, tmp_path):
    """Even if its label is in no other row, so that it could name the columns."""
    for name in ("a.csv", "a.csv.gz"):
        with refused(TrainingError, name, "first line", "--text", "--label"):
            read_labelled(write(tmp_path / name, lines), names=names)
    above = write(tmp_path / "named.csv", ["评论,情感", *lines])
    column, other = ("情感", "评论") if lines[0].startswith("中性") else ("评论", "情感")
    found = read_labelled(above, text=column, label=other, names=names)
    assert len(found) == len(lines)


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_tables_of_a_folder_are_read_as_files_are(form, tmp_path):
    """`datasets` would read 01 as 1, NA as missing and two lines between quotes as one."""
    separator = "," if form == "csv" else "\t"
    rows = [("好", "01"), ("NA", "1.0"), ('"坏', "1") if form == "tsv" else ("坏", "1"), ('差"', "01")]
    for name, part in (("train-0", rows[:2]), ("train-1", rows[2:])):
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        write(folder / f"{name}.{form}", [separator.join(row) for row in [("text", "label"), *part]])
    found = read_labelled(folder)
    assert found["text"][:] == [text for text, _ in rows]
    assert [found.features["label"].names[label] for label in found["label"]] == ["01", "1", "1", "01"]
    write(folder / f"train-1.{form}", [separator.join(row) for row in [("text", "stars"), *rows[2:]]])
    with refused(TrainingError, folder, "text, label", "stars" if form == "csv" else "column 1"):
        read_labelled(folder)


def test_the_first_row_of_a_folder_is_not_lost(tmp_path):
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "train.csv", ["很好,1", "太差,0", "不错,1"])
    with refused(TrainingError, tmp_path / "folder", "first line", "--text '很好' --label '1'"):
        read_labelled(tmp_path / "folder")


def test_columns_of_a_csv_file_with_other_names(tmp_path):
    """Names that cannot be labels need no options."""
    path = write(tmp_path / "a.csv", ["评论,情感", "很好,正面", "太差,负面"])
    assert len(read_labelled(path, names=["正面", "负面"])) == 2
    assert len(read_labelled(write(tmp_path / "b.csv", ["评论,情感", "很好,1", "太差,0.0"]))) == 2


def test_a_class_may_be_called_as_its_column(tmp_path):
    rows = [{"text": "一", "category": "category"}, {"text": "二", "category": "page"}]
    assert len(read_labelled(write(tmp_path / "a.jsonl", json_lines(rows)))) == 2


REFUSED = {
    "empty.tsv": ("", ["no labelled text"]),
    "empty.csv": ("", ["no labelled text"]),
    "empty.csv.gz": ("", ["no labelled text"]),
    "empty.jsonl": ([""], ["no labelled text"]),
    "blank.tsv": (["", ""], ["no labelled text"]),
    "empty.parquet": (FRAME[:0], ["no labelled text"]),
    "headings.tsv": (["text\tlabel"], ["no labelled text"]),
    "headings.csv": (["text,label"], ["no labelled text"]),
    "no headings.csv": (lines("{},{}"), ["first line", "columns"]),
    "headings unknown.tsv": (["comment\tstars", *lines("{}\t{}")], ["'stars'", "--text 'comment' --label 'stars'"]),
    "space.tsv": (["很好\t1", "", "太差 0"], ["line 3", "'column 2'"]),
    "tabs.tsv": (["很\t好\t1"], ["column 1, column 2, column 3", "--text", "--label"]),
    "more tabs.tsv": (["很好\t1", "很\t好\t1"], ["line 2", 2, 3]),
    "comma.csv": (["text,label", "很好,真的,1"], ["line 2", 2, 3]),
    "quote.csv": (["text,label", '"很好,1'], ["row 1"]),
    "semicolons.csv": (["text;label", "很好;1"], ["one column", "text;label", "commas"]),
    "alike.tsv": (["很好\t1", "太差\t1"], ["label", "'1'"]),
    "no label.tsv": (["很好\t1", "太差\t"], ["line 2", "'column 2'"]),
    "no label.csv": (["text,label", "很好,1", "一般,0", "太差,", "更差,"], ["row 4", "'label'", "1 more"]),
    "short.csv": (["text,label", "很好,1", "太差"], ["row 3", "'label'"]),
    "no label.parquet": (FRAME.replace("1", None), ["row 5", "'label'"]),
    "no number.parquet": (NUMBERS.replace(1, float("nan")), ["row 5", "'label'"]),
    "no text.tsv": (["很好\t1", "太差\t0", "\t0"], ["line 3", "'column 1'"]),
    "names.csv": (["id,comment,stars", "7,很好,1"], ["id, comment, stars", "--text", "--label"]),
    "all different.csv": (["text,label", *(f"{i}好,{i}" for i in range(30))], ["label", "30 different", "--label"]),
    "list.jsonl": (["[1]"], ["line 1", "object"]),
    "broken.jsonl": (['{"text": '], ["line 1", "JSON"]),
    "fields.jsonl": (['{"text": "很好", "label": 1}', '{"text": "太差", "stars": 1}'], ["line 2", "'label'"]),
    "null.jsonl": (['{"text": "很好", "label": 1}', '{"text": "太差", "label": null}'], ["line 2", "'label'"]),
    "tags.jsonl": (['{"text": "很好", "label": ["1"]}'], ["line 1", "'label'", "list"]),
    "doubled.csv": (["text,label,text", "很好,1,x"], ["two columns", "'text'"]),
    "doubled.tsv": (["text\tlabel\tlabel", "很好\t1\t0"], ["two columns", "'label'"]),
    "book.xlsx": ("PK", ["workbook", ".csv"]),
    "broken.parquet": ("PAR1", ["cannot be read"]),
    "table.csv.gz": (FRAME, ["cannot be read"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_learned_from(name, tmp_path):
    content, facts = REFUSED[name]
    error = CorpusError if name in ("list.jsonl", "broken.jsonl") else TrainingError
    with refused(error, name, *facts):
        read_labelled(write(tmp_path / name, content))


@pytest.mark.parametrize(
    ("options", "facts"), [({"text": "评论"}, ["'评论'", "--text"]), ({"label": "x"}, ["'x'", "--label"])]
)
def test_a_column_that_is_not_there(options, facts, tmp_path):
    with refused(TrainingError, "a.csv", "text, label", *facts):
        read_labelled(write(tmp_path / "a.csv", ["text,label", *lines("{},{}")]), **options)


def test_a_label_that_training_lacks(tmp_path):
    path = write(tmp_path / "test.tsv", ["很好\t1", "太差\t0", "一般\t2"])
    with refused(TrainingError, path, "line 3", "'2'", "0, 1"):
        read_labelled(path, "test", names=["0", "1"])


def test_files_that_are_not_there_or_not_text(tmp_path):
    for name in "missing.tsv", str(tmp_path / "missing"):
        with refused(TrainingError, name, "does not exist"):
            read_labelled(name)
    for name in "gbk.tsv", "gbk.csv":
        with refused(TrainingError, name, "UTF-8", "GB18030"):
            read_labelled(write(tmp_path / name, ["text,label", "很好,1", "太差\t1"], "gb18030"))
    with refused(TrainingError, "excel.tsv", "UTF-8", "UTF-16"):
        read_labelled(write(tmp_path / "excel.tsv", ["text\tlabel", "很好\t1", "太差\t0"], "utf-16"))
    doubled = pyarrow.table([["很好"], ["1"], ["0"]], names=["text", "label", "label"])
    pyarrow.parquet.write_table(doubled, tmp_path / "doubled.parquet")
    with refused(TrainingError, "doubled.parquet", "label"):
        read_labelled(tmp_path / "doubled.parquet")
