"""Labels as they are read: several per text, numbers, names of folders, and labels that are left out."""

import csv
import json
import math

import datasets
import pytest
from helpers.messages import refused
from helpers.properties import max_examples
from hypothesis import example, given
from hypothesis import strategies as st

from modeling_roformer.training import TrainingError, encode_labels, load_folders, load_labelled

ROWS = [("足球", ["体育"]), ("股市", ["财经", "体育"]), ("天气", []), ("股票", ["财经", "财经"])]


def write_lines(path, labels):
    rows = [{"text": f"文{number}", "label": label} for number, label in enumerate(labels)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def write_table(path, labels):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *((f"文{number}", label) for number, label in enumerate(labels))]
        )
    return str(path)


def names_of(rows):
    names = rows.features["label"].feature.names
    return [[names[number] for number in ids] for ids in rows["label"]]


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_a_list_is_several_labels(suffix, tmp_path):
    rows, path = (
        datasets.Dataset.from_list([{"text": text, "label": labels} for text, labels in ROWS]),
        tmp_path / "rows",
    )
    path = path.with_suffix(f".{suffix}")
    rows.to_parquet(path) if suffix == "parquet" else rows.to_json(path, lines=suffix == "jsonl", force_ascii=False)
    parts, left_out = load_labelled({"train": str(path)})
    assert names_of(parts["train"]) == [["体育"], ["体育", "财经"], [], ["财经"]] and left_out == 0
    assert parts["train"]["text"][:] == [text for text, _ in ROWS]
    parts, _ = load_labelled({"train": str(path)}, order=["财经", "体育"])  # as the head of a model has them
    assert parts["train"].features["label"].feature.names == ["财经", "体育"]


def test_lists_of_class_ids_have_their_names(tmp_path):
    """Data sets on the Hub store several labels so."""
    feature = datasets.List(datasets.ClassLabel(names=["乙", "甲"]))
    features = datasets.Features({"text": datasets.Value("string"), "label": feature})
    rows = datasets.Dataset.from_dict({"text": ["文", "字"], "label": [[1], [0, 1]]}, features)
    rows.to_parquet(tmp_path / "rows.parquet")
    parts, _ = load_labelled({"train": str(tmp_path / "rows.parquet")})
    assert [{*names} for names in names_of(parts["train"])] == [{"甲"}, {"乙", "甲"}]


def test_the_first_label_of_the_training_texts_decides_whether_there_are_several(tmp_path):
    several, one = (
        write_lines(tmp_path / "a.jsonl", [["甲", "乙"], "甲"]),
        write_lines(tmp_path / "b.jsonl", ["甲", "乙"]),
    )
    parts, _ = load_labelled({"train": several, "test": one})
    assert names_of(parts["train"]) == [["乙", "甲"], ["甲"]] and names_of(parts["test"]) == [["甲"], ["乙"]]
    with refused(TrainingError, f"{several}, line 1: label", "list"):
        load_labelled({"train": one, "test": several})


@pytest.mark.parametrize("label", [["甲", ""], ["甲", None], None, " "])
def test_a_blank_label_in_a_list_is_refused(label, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", [["甲", "乙"], label])
    with refused(TrainingError, f"{path}, line 2: label"):
        load_labelled({"train": path})


NAME = st.text(
    st.characters(codec="utf-8", exclude_characters=",", exclude_categories=["C", "Z"]), min_size=1, max_size=3
)


@max_examples(30)
@given(st.lists(st.lists(NAME, min_size=1, max_size=3), min_size=1, max_size=4), st.sampled_from([",", "||", " / "]))
def test_separated_labels_are_those_that_were_joined(tmp_path, lists, separator):
    lists = [*lists, ["体育", "财经"]]
    joined = [separator.join([*names, ""] if number % 2 else names) for number, names in enumerate(lists)]
    if any(separator.strip() in name for names in lists for name in names):
        return
    path = write_table(tmp_path / "rows.csv", joined)
    parts, _ = load_labelled({"train": path}, separator=separator)
    assert [{*names} for names in names_of(parts["train"])] == [{*names} for names in lists]


def test_bad_separated_labels_are_named(tmp_path):
    path, other = write_table(tmp_path / "a.csv", ["甲,乙", "甲"]), write_table(tmp_path / "b.csv", ["甲", "乙 ,丙"])
    with refused(TrainingError, f"{other}, row 2: label", "'丙'"):
        load_labelled({"train": path, "test": other}, separator=",")
    for label in ("", ", ,"):
        wrong = write_table(tmp_path / "c.csv", ["甲,乙", label])
        with refused(TrainingError, f"{wrong}, row 2: label"):
            load_labelled({"train": wrong}, separator=",")
    with refused(TrainingError, f"{path}, row 2: label", "';'"):
        load_labelled({"train": write_table(tmp_path / "a.csv", ["甲,乙", ";"])}, separator=";")


@pytest.mark.parametrize("labels", [[["甲"], ["甲"]], [[], []]])
def test_two_labels_are_needed(labels, tmp_path):
    path = write_lines(tmp_path / "rows.jsonl", labels)
    with refused(TrainingError, path, *(repr(name) for name in labels[0])):
        load_labelled({"train": path})


def test_an_unknown_label_in_a_list_is_named_with_its_row(tmp_path):
    train, test = (
        write_lines(tmp_path / "a.jsonl", [["甲", "乙"]]),
        write_lines(tmp_path / "b.jsonl", [[], ["甲", "丙"]]),
    )
    with refused(TrainingError, f"{test}, line 2: label", "'丙'"):
        load_labelled({"train": train, "test": test})


@max_examples(30)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, unique=True))
@example([1e16, 0.1 + 0.2])
def test_numbers_are_read_exactly(tmp_path, numbers):
    for write, name in ((write_lines, "rows.jsonl"), (write_table, "rows.csv")):
        parts, _ = load_labelled({"train": write(tmp_path / name, numbers)}, numbers=True)
        assert parts["train"]["label"][:] == numbers


@pytest.mark.parametrize("label", ["nan", "inf", "-inf", "1e400", "三", "1,5", "True"])
def test_what_is_not_a_finite_number_is_named_with_its_row(label, tmp_path):
    table = write_table(tmp_path / "rows.csv", ["1", "2", label])
    with refused(TrainingError, f"{table}, row 3: label", repr(label)):
        load_labelled({"train": table}, numbers=True)


@pytest.mark.parametrize("label", [True, math.nan, math.inf, None, [1.0]])
def test_values_that_are_no_numbers_are_named_with_their_row(label, tmp_path):
    lines = write_lines(tmp_path / "rows.jsonl", [1, 2.5, label])
    with refused(TrainingError, f"{lines}, line 3: label"):
        load_labelled({"train": lines}, numbers=True)


def test_equal_numbers_are_refused(tmp_path):
    path = write_table(tmp_path / "rows.csv", ["1", "1.0"])
    with refused(TrainingError, path):
        load_labelled({"train": path}, numbers=True)


def write_folders(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return str(folder)


def test_labels_are_names_of_folders(tmp_path):
    files = {"体育/0.txt": "足球\n比赛\n", "体育/1.txt": "篮球", "财经/1.txt": "股票\n", "README.txt": "about"}
    train = write_folders(tmp_path / "train", files)
    test = write_folders(tmp_path / "test", {"财经/7.txt": "股市"})
    parts, _ = load_labelled({"train": train, "test": test}, from_folders=True)
    assert parts["train"]["text"][:] == ["足球\n比赛\n", "篮球", "股票\n"] and parts["train"]["label"][:] == [0, 0, 1]
    assert parts["train"].features["label"].names == ["体育", "财经"] and parts["test"]["label"][:] == [1]
    other = write_folders(tmp_path / "other", {"军事/7.txt": "军舰"})
    with refused(TrainingError, other, "'军事'"):
        load_labelled({"train": train, "test": other}, from_folders=True)


@pytest.mark.parametrize(
    ("name", "text"), [("体育/1.txt", " \n"), ("体育/1.txt", ""), ("1.txt", "文"), ("体育/甲/1.txt", "文")]
)
def test_a_file_without_a_text_or_a_label_is_named(name, text, tmp_path):
    folder = write_folders(tmp_path / "data", {"财经/0.txt": "股票", name: text})
    with refused(TrainingError, tmp_path / "data" / name):
        load_folders(folder)


def test_other_files_are_refused(tmp_path):
    write_folders(tmp_path / "data", {"体育/1.jsonl": '{"text": "足球"}\n', "财经/0.txt": "股票"})
    with refused(TrainingError, tmp_path / "data" / "体育/1.jsonl"):
        load_folders(tmp_path / "data")
    (tmp_path / "data" / "体育" / "1.jsonl").unlink()
    (tmp_path / "data" / "体育" / "1.txt").write_bytes("足球".encode("gbk"))
    with refused(TrainingError, tmp_path / "data" / "体育/1.txt", "UTF-8"):
        load_folders(tmp_path / "data")
    with refused(TrainingError, tmp_path / "data" / "财经/0.txt"):
        load_folders(tmp_path / "data" / "财经/0.txt")


def test_rows_with_an_ignored_label_are_left_out(tmp_path):
    train = write_table(tmp_path / "a.csv", ["蕴含", "-", "矛盾", "-", "?"])
    test = write_table(tmp_path / "b.csv", ["矛盾"])
    parts, left_out = load_labelled({"train": train, "test": test}, ignored=["-", "?"])
    assert left_out == 3 and parts["train"]["text"][:] == ["文0", "文2"] and parts["test"].num_rows == 1
    assert parts["train"].features["label"].names == ["矛盾", "蕴含"]
    several = write_lines(tmp_path / "c.jsonl", [["甲", "-"], ["乙"], [], ["甲"]])
    parts, left_out = load_labelled({"train": several}, ignored=["-"])
    assert left_out == 1 and names_of(parts["train"]) == [["乙"], [], ["甲"]]
    numbers = write_table(tmp_path / "d.csv", ["1", "NA", "2"])
    parts, left_out = load_labelled({"train": numbers}, ignored=["NA"], numbers=True)
    assert left_out == 1 and parts["train"]["label"][:] == [1, 2]


def test_an_ignored_label_that_no_row_or_every_row_has_is_refused(tmp_path):
    train, test = write_table(tmp_path / "a.csv", ["甲", "乙"]), write_table(tmp_path / "b.csv", ["乙"])
    with refused(TrainingError, train, test, "'-'"):
        load_labelled({"train": train, "test": test}, ignored=["-"])
    with refused(TrainingError, test):
        load_labelled({"train": train, "test": test}, ignored=["乙"])


def test_lists_are_encoded_in_the_order_of_the_ids(tmp_path):
    feature = datasets.Features({"text": datasets.Value("string"), "label": datasets.List(datasets.Value("string"))})
    rows = datasets.Dataset.from_dict({"text": ["文"], "label": [["乙", "甲", "乙"]]}, feature)
    assert encode_labels({"train": rows}, {"train": "a"})["train"]["label"][:] == [[0, 1]]
