"""The files of a corpus and of a data set: which are read, in which order, and which are refused."""

import errno
import gzip
import lzma
import os
import socket
from pathlib import Path

import pytest
from helpers.messages import refused

from modeling_roformer import data
from modeling_roformer.data import DataError, find_files
from modeling_roformer.training import Corpus, TrainingError, files_of, load_data, load_texts
from modeling_roformer.training.runs.run_folder import _identity


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes files with one text each into a folder, and returns the folder."""

    def folder(*names):
        for name in names:
            path = tmp_path / "folder" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = f"text\n{name}\n" if name.endswith((".csv", ".tsv")) else f"{name}\n"
            path.write_text(f'{{"text": "{name}"}}\n' if "json" in name else text)
        return tmp_path / "folder"

    return folder


def names_of(folder, split=None):
    return [file.relative_to(folder).as_posix() for file in find_files([folder], split)]


def test_a_corpus_is_every_visible_file_in_the_order_of_its_parts(folder, capsys):
    place = folder(
        "b/laws.txt",
        "b.jsonl",
        "a-z.csv",
        "a/z.tsv",
        "a/AA/wiki_00",
        ".hidden.txt",
        "dataset_info.json",
        ".git/a.txt",
        "README.md",
        "README_zh.txt",
        "LICENSE",
        "license.txt",
        "readme",
        "a/notes.md",
        "a/picture.png",
    )
    assert names_of(place) == ["a/AA/wiki_00", "a/z.tsv", "a-z.csv", "b/laws.txt", "b.jsonl"]
    skipped = capsys.readouterr().err
    others, about = skipped.splitlines()  # README_zh.txt and license.txt might have been data
    assert "2" in others and "a/notes.md" in others and "2" in about and "README_zh.txt" in about
    names_of(place)
    assert capsys.readouterr().err == ""  # once is enough
    texts = [text for _, text in data.read_texts([place])]
    assert texts == names_of(place) == Corpus([place], cache=place.parent / "cache").documents()["text"][:]
    assert files_of(place) == find_files([place])


def test_a_file_is_read_once_from_a_folder_and_its_parts(folder):
    place = folder("a.txt", "b.txt")
    (place / "c.txt").symlink_to(place / "a.txt")
    assert names_of(place) == ["a.txt", "b.txt"]
    assert [path.name for path in find_files([place / "b.txt", place])] == ["b.txt", "a.txt"]


def test_tables_and_json_called_readme_or_license_are_data(folder):
    names = ["LICENSE.csv", "README.tsv.gz", "license_texts.jsonl", "readme-1.json"]
    assert names_of(folder(*names, "LICENSE", "README.md")) == names


def test_links_to_folders_are_followed(folder, tmp_path):
    place = folder("a.txt", "real/b.txt")
    (tmp_path / "disk" / "more").mkdir(parents=True)
    for name in ("disk/c.txt", "disk/more/d.txt"):
        (tmp_path / name).write_text("文\n")
    (place / "linked").symlink_to("../disk")
    (place / "again").symlink_to("real")  # which is read without the link
    (tmp_path / "disk" / "up").symlink_to("..")  # where everything is
    (place / "loop").symlink_to(".")
    assert names_of(place) == ["a.txt", "linked/c.txt", "linked/more/d.txt", "real/b.txt"]
    assert names_of(place, "train") == names_of(place)
    before = _identity(place)
    assert _identity(place) == before
    (tmp_path / "disk" / "c.txt").write_text("字\n")
    assert _identity(place) != before  # so that a run is not resumed


def test_pipes_sockets_and_devices_in_a_folder_are_left_out(folder, tmp_path, capsys):
    """Nobody writes into the pipe, so that reading it would never end."""
    place = folder("a.txt", "b/c.txt")
    os.mkfifo(place / "pipe.txt")
    os.mkfifo(place / "b" / "pipe")
    (place / "device.txt").symlink_to("/dev/zero")
    (place / "linked.txt").symlink_to(tmp_path / "d.txt")
    (tmp_path / "d.txt").write_text("d\n")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(place / "socket"))  # a path of at most 108 bytes
        assert names_of(place) == names_of(place, "train") == ["a.txt", "b/c.txt", "linked.txt"]
        assert [text for _, text in data.read_texts([place])] == ["a.txt", "b/c.txt", "d"]
    (tmp_path / "d.txt").unlink()
    with refused(DataError, place / "linked.txt"):  # a broken link is a mistake
        list(data.read_texts([place]))


def test_a_folder_that_cannot_be_read_is_named(folder, monkeypatch):
    place = folder("a.txt", "b/c.txt")
    scan = os.scandir

    def denied(path):
        if Path(path).name == "b":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", denied)  # root reads any folder
    with refused(DataError, place / "b"):
        find_files([place])


def test_a_folder_without_files_to_read_is_refused(folder):
    place = folder("README.md", "a.md", ".a.txt")
    with refused(DataError, place, ".jsonl"):
        find_files([place])


CONTENTS = {
    "table.xlsx": b"PK\x03\x04",
    "texts.XLSX": b"PK\x03\x04",
    "table.xls": b"\xd0\xcf\x11\xe0",
    "text.docx": b"PK\x03\x04",
    "text.pdf": b"%PDF-1.7",
    "texts.zip": b"PK\x03\x04",
    "texts.xz": lzma.compress(b"text"),
    "texts.txt.bz2": b"BZh9",
    "texts.zst": b"\x28\xb5\x2f\xfd",
    "texts.tar.gz": gzip.compress(b"text"),
    "texts.arrow": b"ARROW1",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_formats_that_are_none_are_refused_by_name(name, folder):
    place = folder("a.txt")
    (place / name).write_bytes(CONTENTS[name])
    for source in (place, place / name):
        for read in (find_files, lambda sources: list(data.read_texts(sources))):
            with refused(DataError, place / name):
                read([source])
        with refused(TrainingError, place / name):
            load_texts(source, ["text"])
    (place / name).unlink()
    with refused(DataError, place / name, "does not exist"):  # nor is it sought on the Hub
        list(data.read_texts([str(place / name)]))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".jsonl", ""])
@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04\x14\x00",
        b"%PDF-1.7\n",
        gzip.compress(b"text\nlaws\n"),
        "text\n法\n".encode("utf-16"),
        "text\nlaws\n".encode("utf-16-le"),
        b"PAR1\x15\x04",
        lzma.compress(b"text\nlaws"),
        b"text\nla\0ws\n",
    ],
    ids=["zip", "pdf", "gzip", "UTF-16", "UTF-16 without a mark", "Parquet", "xz", "NUL"],
)
def test_formats_that_are_none_are_refused_by_their_first_bytes(content, suffix, tmp_path):
    path = tmp_path / f"laws{suffix}"
    path.write_bytes(content)
    for read in (lambda: list(data.read_texts([path])), lambda: list(data.read_batches(path))):
        with refused(DataError, path):
            read()
    with refused(TrainingError, path):
        load_texts(path, ["text"])


def test_a_text_that_begins_with_letters_of_a_signature_is_read(tmp_path):
    (tmp_path / "a.txt").write_text("PK赛今天开始\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("BZ大桥\n", encoding="utf-8")
    assert [text for _, text in data.read_texts([tmp_path])] == ["PK赛今天开始", "BZ大桥"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".jsonl"])
def test_lines_that_end_with_a_return_alone_are_refused(suffix, tmp_path):
    path = tmp_path / f"laws{suffix}"
    path.write_bytes(b'text\r{"text": 1}\rc\r')
    with refused(DataError, path, "\\r"):
        list(data.read_texts([path]))


@pytest.mark.parametrize("name", ["laws.txt", "laws.txt.gz"])
def test_a_return_in_a_long_first_line_is_a_character(name, tmp_path):
    text = "法\r律" + "a" * 100_000
    data_of_file = f"{text}\nb\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(data_of_file) if name.endswith(".gz") else data_of_file)
    assert [text for _, text in data.read_texts([tmp_path / name])] == [text, "b"]


@pytest.mark.parametrize("name", ["laws[1].csv", "m*.csv", "m?.csv", "laws[1]"])
def test_no_name_is_a_pattern(folder, name):
    place = folder("laws1.csv", "m1.csv", "m2.csv")
    with refused(DataError, place / name, "does not exist", "pattern"):
        find_files([place / name])


def test_only_a_name_that_is_written_like_one_is_looked_up_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").touch()
    for name in (
        "here",
        str(tmp_path / "texts"),
        "./texts",
        "../texts",
        "texts/",
        "texts.csv",
        "a/b/texts",
        "a/b.gz",
        "-x",
    ):
        assert not data.may_be_on_hub(name), name
    for name in ("texts", "owner/name", "owner/name-v1.1", "name:zh"):
        assert data.may_be_on_hub(name), name


SPLITS = [
    (["train.csv", "dev.csv", "test.csv"], {"train": ["train.csv"], "validation": ["dev.csv"], "test": ["test.csv"]}),
    (["training.tsv", "val.tsv"], {"train": ["training.tsv"], "validation": ["val.tsv"]}),
    (["my_train_data.csv", "data-valid.csv"], {"train": ["my_train_data.csv"], "validation": ["data-valid.csv"]}),
    (["Train.csv", "TEST.csv"], {"train": ["Train.csv"], "test": ["TEST.csv"]}),
    (["train/a.txt", "train/b.txt", "eval/a.txt"], {"train": ["train/a.txt", "train/b.txt"], "test": ["eval/a.txt"]}),
    (
        ["data/train-00000-of-00002.csv", "data/train-00001-of-00002.csv", "data/test-00000-of-00001.csv"],
        {
            "train": ["data/train-00000-of-00002.csv", "data/train-00001-of-00002.csv"],
            "test": ["data/test-00000-of-00001.csv"],
        },
    ),
    (["train/test.csv", "train/train.csv"], {"train": ["train/train.csv"], "test": ["train/test.csv"]}),
    (["a.csv", "b.csv", "README.md", "LICENSE"], {"train": ["a.csv", "b.csv"]}),
    (["train.csv", "dataset_info.json", "dataset_infos.json"], {"train": ["train.csv"]}),
]


@pytest.mark.parametrize(("names", "splits"), SPLITS, ids=lambda part: part[0] if isinstance(part, list) else "")
def test_splits_of_a_folder(names, splits, folder):
    place = folder(*names)
    for split in ("train", "validation", "test"):
        if split in splits:
            assert names_of(place, split) == splits[split]
            if not names[0].endswith(".txt"):
                assert load_texts(place, ["text"], split)["text"][:] == splits[split]
        else:
            with refused(DataError, place, split):
                names_of(place, split)


def test_files_beside_the_splits_are_an_error(folder):
    place = folder("train.csv", "test.csv", "more.csv")
    for split in ("train", "test"):
        with refused(DataError, place, "more.csv"):
            names_of(place, split)


def test_a_split_of_no_name_is_an_error(folder):
    with refused(DataError, "'dev'"):
        names_of(folder("train.csv"), "dev")


def test_a_name_with_two_splits_is_an_error(folder):
    place = folder("train_test.csv", "dev.csv")
    with refused(DataError, "train_test.csv", "train", "test"):
        names_of(place, "train")


def test_files_of_a_split_have_one_format(folder):
    place = folder("train.jsonl", "train-1.csv")
    with refused(DataError, place, "train.jsonl", "train-1.csv"):
        names_of(place, "train")


README = (
    "---\nlicense: mit\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {}\n---\nAbout\n"
)


def test_a_readme_that_names_other_files_is_an_error(folder):
    place = folder("data/train-0.csv", "data/train-1.csv")
    for path in ("data/train-*", "data/*.csv", "[data/train-0.csv, data/train-1.csv]"):
        (place / "README.md").write_text(README.format(path))
        assert len(names_of(place, "train")) == 2
    for path in ("data/train-0.csv", "other/*"):
        (place / "README.md").write_text(README.format(path))
        with refused(DataError, place / "README.md", "configs"):
            names_of(place, "train")
    (place / "README.md").write_text("---\nconfigs: {\n---\n")
    with refused(DataError, place / "README.md", "configs"):
        names_of(place, "train")
    (place / "README.md").write_text("no front matter: configs:\n")
    assert len(names_of(place, "train")) == 2


def test_each_file_of_a_folder_is_read_as_if_it_were_named(tmp_path):
    (tmp_path / "data").mkdir()
    for number, text in enumerate(('"今天', '明月"')):
        (tmp_path / "data" / f"{number}.tsv").write_text(f"text\tlabel\n{text}\t0{number}\n", encoding="utf-8")
    found = load_texts(tmp_path / "data", ["text", "label"])
    assert found[:] == {"text": ['"今天', '明月"'], "label": ["00", "01"]}
    assert load_data(tmp_path / "data", cache=tmp_path / "cache")[:] == found[:]


def test_tables_of_a_folder_have_the_same_columns(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("text,label\n甲,1\n", encoding="utf-8")
    (tmp_path / "data" / "b.csv").write_text("text\n乙\n", encoding="utf-8")
    for read in (lambda: load_texts(tmp_path / "data", ["text", "label"]), lambda: load_data(tmp_path / "data")):
        with refused(TrainingError, tmp_path / "data" / "b.csv", "'label'"):
            read()


def test_the_line_about_rows_without_a_text_names_three_files(tmp_path, capsys):
    files = [tmp_path / f"{number}.txt" for number in range(5)]
    for file in files:
        file.write_text("甲\n\n", encoding="utf-8")
    assert Corpus(files, cache=tmp_path / "cache").documents()["text"][:] == ["甲"] * 5
    err = capsys.readouterr().err
    assert f"{files[2]} and 2 more: left out 5 rows" in err and str(files[3]) not in err
