"""Tables of texts: CSV, TSV, JSON Lines and Parquet files, and data sets of `datasets`.

Files are read without the cache of `datasets`, which compares them only by path and time.
"""

import codecs
import csv
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import datasets
import pandas
import pyarrow
import pyarrow.parquet

from ...output.console import sentence_of
from ...tokenization.vocabulary_maker.corpus import is_json_lines, kind_of, read_chunks
from ...tokenization.vocabulary_maker.csv_table import is_csv
from ..errors import TrainingError
from .data_sets import csv_files, is_data_set, load_data_set

_WHOLE = re.compile(r"^(-?\d+)\.0+$")  # a number without a fraction, as pandas writes it in a column with gaps
UNNAMED = "column"  # a column without a name, followed by its number


def read_table(
    source: str | Path, split: str = "train", is_header: Callable[[list[str]], bool] = lambda fields: True
) -> pandas.DataFrame:
    """Read a file or a split of a data set, with a column per field. Class labels are read as their names.

    The index is the number of the line or row, from 1. In a .csv file, the first line is row 1, as in a spreadsheet.

    Args:
        source: a .csv file, whose first line names the columns; a .jsonl, .json or .parquet file; any other file as
            lines with TABs between fields, in which quotes have no meaning; or a data set, by its name (`NAME` or
            `NAME:CONFIG`) or folder. Files but Parquet may be compressed (.gz).
        split: split of a data set.
        is_header: returns whether the fields in the first line of a file with TABs are the names of the columns. If
            not, they are called "column 1" and so on.

    Raises a TrainingError that names the file, or a CorpusError that also names the line.
    """
    path = Path(source)
    if not path.is_file():
        if not path.is_dir() and not is_data_set(source):
            raise TrainingError(f"{source} does not exist")
        if files := csv_files(path, split):
            return _concatenated([read_table(file, is_header=is_header) for file in files], source)
        with tempfile.TemporaryDirectory() as fresh:
            return _frame(load_data_set(str(source), split, fresh if path.is_dir() else None))
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind in ("xls", "xlsx"):
        raise TrainingError(f"{path} is a workbook; save it as .csv, in UTF-8")
    try:
        if kind != "parquet" and is_json_lines(path):
            records = dict(record for chunk in read_chunks(path) for record in chunk.records())
            return pandas.DataFrame(list(records.values()), pandas.Index(list(records), name="line"), dtype=object)
        if kind == "parquet":
            return _frame(datasets.Dataset(pyarrow.parquet.read_table(path)))
        tabs = {"sep": "\t", "quoting": csv.QUOTE_NONE, "lineterminator": "\n"}
        options = {"skipinitialspace": True} if kind == "csv" else tabs
        # All values are strings: 01 stays 01, and NA does not mean a missing value.
        table = pandas.read_csv(
            path, header=None, dtype=str, keep_default_na=False, encoding="utf-8-sig", skip_blank_lines=False, **options
        ).fillna("")
    except pandas.errors.EmptyDataError:
        return pandas.DataFrame()
    except UnicodeDecodeError:
        with open(path, "rb") as file:
            utf_16 = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        advice = "`iconv -f UTF-16 -t UTF-8` converts it" if utf_16 else "`iconv -f GB18030 -t UTF-8` converts GBK"
        raise TrainingError(f"{path} is not UTF-8; {advice}") from None
    except (pandas.errors.ParserError, pyarrow.ArrowInvalid, OSError, EOFError, zlib.error) as error:
        reason = sentence_of(error).removeprefix("Error tokenizing data. C error: ").rstrip(".")
        raise TrainingError(f"{path} cannot be read: {reason}") from None
    table = table.apply(lambda column: column.str.strip())
    table.index = pandas.RangeIndex(1, len(table) + 1, name="row" if kind == "csv" else "line")
    table = table[(table != "").any(axis="columns")]
    if table.empty:
        return table
    fields = table.iloc[0].tolist()
    if kind == "csv" or is_header(fields):
        table = table[1:].set_axis(fields, axis="columns")
        twice = table.columns.duplicated()
        if names := list(filter(None, table.columns[twice])):  # spreadsheets write empty columns without a name
            raise TrainingError(f"{path} has two columns named {names[0]!r}: rename one")
        return table.loc[:, ~twice]
    return table.set_axis([f"{UNNAMED} {number}" for number in range(1, len(fields) + 1)], axis="columns")


def _concatenated(tables: list[pandas.DataFrame], source: str | Path) -> pandas.DataFrame:
    """Return the rows of all files of a folder, numbered from 1."""
    tables = [table for table in tables if not table.empty]
    for table in tables:
        if {*table} != {*tables[0]}:
            raise TrainingError(f"the files of {source} have the columns {listed(tables[0])} and {listed(table)}")
    if not tables:
        return pandas.DataFrame()
    whole = pandas.concat(tables)
    whole.index = pandas.RangeIndex(1, len(whole) + 1, name="row")
    return whole


def has_csv(source: str | Path) -> bool:
    """Return whether a source is CSV, or a folder with CSV: their first lines are read as the names of the columns."""
    path = Path(source)
    return any(kind_of(file) == ".csv" for file in (path.rglob("*") if path.is_dir() else [path]))


def _frame(table: datasets.Dataset) -> pandas.DataFrame:
    frame = table.to_pandas()
    for name, feature in table.features.items():
        if isinstance(feature, datasets.ClassLabel) and feature.names:
            numbers = (-1 if number is None else number for number in table[name])
            frame[name] = [feature.names[number] if number >= 0 else None for number in numbers]  # -1: no label
    frame.index = pandas.RangeIndex(1, len(frame) + 1, name="row")
    return frame


def texts_in(table: pandas.DataFrame, name: str, source: str | Path) -> list[str]:
    """Return the values of a column as strings; numbers as they are written, 1.0 as 1, and half a surrogate pair as
    "?".

    Raises a TrainingError that names the row of a value that is missing, empty, or neither a string nor a number.
    """
    texts, missing = [], []
    for place, value in table[name].items():
        place = f"{table.index.name} {place}"
        if not isinstance(value, str) and hasattr(value, "__len__"):
            raise TrainingError(
                f"{source}, {place}: {name!r} is a {type(value).__name__}; expected a string or a number"
            )
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = "" if value is None or value != value else str(value)
        texts.append(text.encode("utf-8", "replace").decode("utf-8"))
        if not texts[-1].strip():
            missing.append(place)
    if missing:
        others = f", and in {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise TrainingError(
            f"{source}, {missing[0]}: {name!r} is empty{others}; fill it, or remove the {table.index.name}"
        )
    return texts


def labels_in(table: pandas.DataFrame, name: str, source: str | Path) -> list[str]:
    """Return the labels in a column as strings, by one rule for all formats: " 1", 1 and 1.0 are "1". See
    `texts_in`."""
    return [_WHOLE.sub(r"\1", label.strip()) for label in texts_in(table, name, source)]


def pair_in(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the columns of sentence pairs by their names, such as sentence1 and sentence2, or None."""
    names = list(map(str, names))
    ends = [[name[:-1] + end for end in ends] for name in names if name[1:] for ends in ("123", "abc", "ABC")]
    for one, other, third in (*ends, ("premise", "hypothesis", "")):
        if one in names and other in names and third not in names:
            return one, other
    return None


def require_columns(table: pandas.DataFrame, names: dict[str, str], source: str | Path) -> None:
    """Raise a TrainingError unless a table has all columns, which differ. `names` has the option that names each
    column."""
    if not len(table.columns):
        raise TrainingError(f"{source} is empty")
    for option, name in names.items():
        if name not in table.columns:
            lacks_names = is_csv(Path(source)) and {*names.values()}.isdisjoint(table.columns)
            above = ", or put a line with the names of the columns above the first" if lacks_names else ""
            raise TrainingError(
                f"{source} has no column {name!r}, only {listed(table.columns)}: name it with {option}{above}"
            )
    if len({*names.values()}) < len(names):
        raise TrainingError(f"{', '.join(names)} name {', '.join(names.values())}; expected different columns")


def listed(names: Iterable[str]) -> str:
    """Return at most nine names in one string."""
    some = list(map(str, names))
    return ", ".join(some[:9]) + ("" if len(some) < 10 else ", …")
