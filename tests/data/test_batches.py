"""Batches of a file: their rows, their numbers, and what they need."""

import csv
import gzip
import json
import os
import pickle
import subprocess
import sys
from threading import Thread

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from helpers.messages import refused
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer.data import DataError, Texts, read_batches, read_texts, reader


def files(folder, texts):
    """Write texts in every format; return the files."""
    rows = [{"n": number, "text": text} for number, text in enumerate(texts, 1)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "a.txt").write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    (folder / "b.jsonl").write_text(lines)
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "d.json").write_text(json.dumps(rows))
    (folder / "e.csv").write_text("n,text\n" + "".join(f"{row['n']},{row['text']}\n" for row in rows), encoding="utf-8")
    (folder / "f.tsv").write_text(
        "text\tn\n" + "".join(f"{row['text']}\t{row['n']}\n" for row in rows), encoding="utf-8"
    )
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "g.parquet")
    return sorted(folder.iterdir())


def test_batches_are_pickled_and_have_their_rows_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "BATCH_ROWS", 3)
    texts = [f"文本{number}" for number in range(1, 11)]
    for file in files(tmp_path, texts):
        found, consumed, count = [], 0, 0
        for batch in read_batches(file, ["text"], size=40):
            batch = pickle.loads(pickle.dumps(batch))
            rows = list(batch.rows(["text"]))
            assert not rows or rows[0][0] == batch.first_row
            found += rows
            consumed += batch.consumed
            count += 1
        assert found == [(number, [text]) for number, text in enumerate(texts, 1)], file
        assert consumed == pytest.approx(file.stat().st_size) and count > 1


def test_a_data_set_is_read_in_batches(monkeypatch):
    monkeypatch.setattr(reader, "BATCH_ROWS", 3)
    rows = datasets.Dataset.from_dict({"text": [str(n) for n in range(10)], "of": [{"n": n} for n in range(10)]})
    found = [
        row for batch in reader.data_set_batches(rows, ["text", "of.n"], "x") for row in batch.rows(["text", "of.n"])
    ]
    assert found == [(n + 1, [str(n), n]) for n in range(10)]
    with refused(DataError, "x", "'key'", "text"):
        [row for batch in reader.data_set_batches(rows, ["key"], "x") for row in batch.rows(["key"])]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\n\0"'), max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1), st.sampled_from(["\n", "\r\n"]))
def test_cells_of_csv_and_tsv_are_what_is_written(tmp_path_factory, rows, end):
    """The rows are written without a library. A "\\r" before the end of a line belongs to the end."""
    folder = tmp_path_factory.mktemp("tables")
    lines = ["a,b", *(",".join(f'"{cell}"' for cell in row) for row in rows)]
    (folder / "a.csv").write_bytes("".join(line + end for line in lines).encode())
    expected = [[first, last.removesuffix("\r") if end == "\n" else last] for first, last in rows]
    assert [values for batch in read_batches(folder / "a.csv") for _, values in batch.rows(["a", "b"])] == expected
    cells = [[cell.replace("\t", " ") for cell in row] for row in rows]
    (folder / "a.tsv").write_bytes("".join("\t".join(row) + end for row in [["a", "b"], *cells]).encode())
    expected = [[first, last.removesuffix("\r") if end == "\n" else last] for first, last in cells]
    assert [values for batch in read_batches(folder / "a.tsv") for _, values in batch.rows(["a", "b"])] == expected


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows_of_csv_may_lack_values(tmp_path, end):
    """Rows are those of the `csv` module of Python, but for what is lacking."""
    lines = ["a,b,c", "1,2,3", "1,2", "1", "1,,", ",2", '"1","2"', "1,,3"]
    (tmp_path / "a.csv").write_bytes(end.join([*lines, ""]).encode())
    found = [values for batch in read_batches(tmp_path / "a.csv") for _, values in batch.rows(["a", "b", "c"])]
    assert found == [[*row, "", ""][:3] for row in csv.reader(lines[1:])]


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t")])
def test_blanks_at_the_start_of_a_line_of_a_long_table_are_kept(tmp_path, name, separator):
    """pandas reads 256 KiB at once."""
    rows = [["  " * 400 + "中", str(number)] for number in range(2000)]
    (tmp_path / name).write_text("".join(separator.join(row) + "\n" for row in [["a", "b"], *rows]), encoding="utf-8")
    found = [values for batch in read_batches(tmp_path / name) for _, values in batch.rows(["a", "b"])]
    assert found == rows


def test_a_pipe_is_read_once(tmp_path):
    for name, content in {"pipe": '{"text": "甲"}\n', "pipe.txt": "甲\n", "pipe.json": '[{"text": "甲"}]'}.items():
        os.mkfifo(tmp_path / name)
        Thread(target=(tmp_path / name).write_bytes, args=[content.encode()], daemon=True).start()
        corpus = Texts((str(tmp_path / name),))
        assert corpus.checked_size() == 0 and [text for _, text in corpus] == ["甲"]


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    rows = ["text", *["好"] * 3000]
    for name in ("a.csv", "a.tsv", "a.txt", "a.csv.gz"):
        content = "".join(row + "\n" for row in rows).encode() + "坏\n".encode("gb18030")
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        with refused(DataError, tmp_path / name, "GB18030"):
            list(read_texts([tmp_path / name]))


def test_ids_are_files_and_rows_or_a_column(tmp_path):
    for file in files(tmp_path, ["甲", " ", "乙"]):
        ids = [id_ for id_, _ in read_texts([file])]
        assert ids == [f"{file.name}:1", f"{file.name}:3"]
        if file.suffix == ".txt":
            with refused(DataError, file, "'n'", "--id-field"):
                list(read_texts([file], id_field="n"))
        else:
            assert [id_ for id_, _ in read_texts([file], id_field="n")] == ["1", "3"]


def test_a_whole_file_is_a_text_only_if_it_is_text(tmp_path):
    for file in files(tmp_path, ["甲", "", "乙"]):
        texts = [text for _, text in Texts((str(file),), sample_by="document")]
        assert texts == (["甲\n\n乙\n"] if file.suffix == ".txt" else ["甲", None, "乙"])
    objects = tmp_path / "after_blank_lines"
    objects.write_text("\n" * 9 + '{"text": "甲"}\n')
    assert [*Texts((str(objects),), sample_by="document", batch_bytes=4)] == [("after_blank_lines:10", "甲")]
    with refused(DataError, "'file'", "line, document"):
        Texts((str(file),), sample_by="file")


PROGRAM = """
import sys
sys.modules["roformer_command"] = sys  # start as the command does: without transformers
from modeling_roformer.data import read_texts
print([text for _, text in read_texts([sys.argv[1]])])
print(*sorted({"torch", "transformers", "pandas", "pyarrow", "datasets"} & {*sys.modules}))
"""


def test_libraries_are_imported_only_where_their_files_are_read(tmp_path):
    for file in files(tmp_path, ["甲"]):
        out = subprocess.run([sys.executable, "-c", PROGRAM, file], capture_output=True, text=True, check=True).stdout
        texts, imported = out.splitlines()
        assert texts == "['甲']"
        if file.suffix in (".csv", ".tsv"):
            assert "pandas" in imported.split() and not {"torch", "transformers", "datasets"} & {*imported.split()}
        else:
            assert imported == ("pyarrow" if file.suffix == ".parquet" else "")
