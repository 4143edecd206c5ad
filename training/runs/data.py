"""Data for training: files and data sets, read by `datasets`."""

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import datasets
import pandas

from ...output.console import no_warnings, sentence_of
from ...tokenization.vocabulary_maker.corpus import CorpusError, is_json_lines, read_chunks, writable
from ..errors import TrainingError

_CSV = {"encoding": "utf-8-sig", "keep_default_na": False}  # "NA" is a text like any other
_TEXT = {"encoding": "utf-8-sig"}
# Suffix of a file, before .gz -> the builder of `datasets` and its options.
_FORMATS = {
    ".csv": ("csv", _CSV),
    ".tsv": ("csv", {**_CSV, "sep": "\t", "quoting": csv.QUOTE_NONE}),  # quotes are part of a text
    ".json": ("json", _TEXT),
    ".jsonl": ("json", _TEXT),
    ".parquet": ("parquet", {}),
}
FILES = {*_FORMATS, ".gz", ".ndjson", ".txt"}  # never sought on the Hub


def load_data(source: str | Path, split: str = "train", cache: str | Path | None = None, **options) -> datasets.Dataset:
    """Load a file or a split of a data set with `datasets.load_dataset`.

    Args:
        source: a .csv, .tsv, .jsonl, .json or .parquet file, or text in UTF-8, which may be compressed (.gz). A file of
            another name whose first line is a JSON object is JSON Lines. Or a data set: a folder, or NAME or
            NAME:CONFIG on the Hub. The first line of .csv and .tsv names the columns. Their values are strings, as they
            are written, and quotes have no meaning in .tsv.
        split: split of a data set; a file has none.
        cache: folder for the Arrow files; None for the cache of `datasets`.
        options: further options of the builder, such as `column_names` for a .tsv file without names.

    Raises a TrainingError that names the source if it cannot be read.
    """
    path = Path(source)
    place, _, config = str(source).partition(":")
    if not path.exists() and not may_be_on_hub(source):
        raise TrainingError(f"{source} does not exist")
    if path.is_file():
        place, of_format = builder_of(path)
        # A name of its own for each version: `datasets` compares only the time of modification with its cache.
        config, split, options = version_of(path), "train", {**of_format, **options}
        if place == "csv" and (names := options.get("column_names") or _names(path, options)):
            options = {"features": datasets.Features(dict.fromkeys(names, datasets.Value("string"))), **options}
        options["data_files"] = str(path)
    elif path.is_dir():
        place, config = str(source), ""
    try:
        with no_warnings("huggingface_hub"):  # one for each attempt to reach the Hub
            return datasets.load_dataset(place, config or None, split=split, cache_dir=cache and str(cache), **options)
    except Exception as error:  # of many types, from readers and from the Hub
        reason = sentence_of(error.__cause__ or error).rstrip(".")
        what = "cannot be read" if path.exists() else "is neither a file nor a data set that can be read"
        raise TrainingError(f"{source} {what}: {reason}") from None


def may_be_on_hub(source: str | Path) -> bool:
    """Return whether a source may be the name of a data set on the Hub: it is no file or folder, nor written like
    one."""
    name = str(source).partition(":")[0]
    is_name = re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", name, re.ASCII)
    return bool(is_name) and not Path(source).exists() and Path(name).suffix.lower() not in FILES


def builder_of(path: Path) -> tuple[str, dict]:
    """Return the builder of `datasets` for a file, and its options."""
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    return _FORMATS.get(suffix) or ("json" if is_json_lines(path) else "text", _TEXT)


def version_of(path: Path) -> str:
    """Return what changes whenever a file is written, even if its time of modification is set back."""
    found = path.stat()
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def holds_json_lines(path: Path) -> bool:
    """Return whether a file is JSON Lines, and not one list, which `datasets` reads."""
    if not path.is_file() or builder_of(path)[0] != "json":
        return False
    try:
        lines = (chunk.data.lstrip() for chunk in read_chunks(path, 1))
        return not next(filter(None, lines), b"").startswith(b"[")
    except CorpusError:  # `datasets` says why
        return False


def _names(path: Path, options: dict) -> list[str]:
    """Return the names of the columns of a table. Raises a TrainingError if the second line has more fields than the
    first: pandas would drop the first of each."""
    try:
        head = pandas.read_csv(path, nrows=1, **options)
    except (ValueError, OSError):  # `load_dataset` says why
        return []
    if not isinstance(head.index, pandas.RangeIndex):
        raise TrainingError(f"{path}, line 2: more fields than names in line 1; quote texts that have a separator")
    return list(head.columns)


def load_texts(
    source: str | Path, columns: Mapping[str, str] | Sequence[str], split: str = "train", **options
) -> datasets.Dataset:
    """Load columns of a file or a data set as strings: values of .csv and .tsv as they are written, such as 01, other
    numbers as Python prints them, and class ids by their names.

    Args:
        columns: names of the columns, or the new name of each column -> its name in the source. A field of a struct is
            a column, such as `translation.de`.
        source, split, options: see `load_data`.

    Raises a TrainingError that names source, column and row: there is no such column, or a value is missing or blank.
    """
    names = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    read = _fields if holds_json_lines(Path(source)) and not {*options} - {"cache"} else _columns
    columns, texts = read(source, list(names.values()), split, **options), {}
    for name, column in names.items():
        # NaN is missing.
        texts[name] = ["" if value is None or value != value else writable(str(value)) for value in columns[column]]
        for row, text in enumerate(texts[name], 1):
            if not text.strip():
                raise TrainingError(f"{source}, row {row}: {column} is empty: fill it, or remove the row")
    if not any(texts.values()):
        raise TrainingError(f"{source} has no rows")
    return datasets.Dataset.from_dict(texts, datasets.Features(dict.fromkeys(texts, datasets.Value("string"))))


def _columns(source: str | Path, columns: Sequence[str], split: str, **options) -> dict[str, list]:
    """Return columns of a table or a data set."""
    found = load_data(source, split, **options).flatten()
    if missing := [column for column in columns if column not in found.column_names]:
        raise TrainingError(f"{source} has no column {missing[0]}, only {', '.join(found.column_names)}")
    values = {column: found[column][:] for column in columns}
    for column, feature in found.select_columns(list(values)).features.items():
        if isinstance(feature, datasets.ClassLabel):
            values[column] = [None if id_ in (None, -1) else feature.int2str(id_) for id_ in values[column]]
    return values


def _fields(source: str | Path, columns: Sequence[str], *_, **__) -> dict[str, list]:
    """Return fields of JSON Lines. `datasets` would take the types of all fields from the first lines, and refuse
    others in later lines."""
    values: dict[str, list] = {column: [] for column in columns}
    try:
        for number, record in (row for chunk in read_chunks(Path(source)) for row in chunk.records()):
            for column in values:
                try:
                    values[column].append(_field(record, column))
                except (KeyError, TypeError):
                    names = ", ".join(pandas.json_normalize(record))
                    raise TrainingError(f"{source}, line {number} has no column {column}, only {names}") from None
    except CorpusError as error:
        raise TrainingError(str(error)) from None
    return values


def _field(record: dict, name: str) -> object:
    """Return a field of an object, or of an object in it, such as `translation.de`."""
    if name not in record:
        first, _, rest = name.partition(".")
        return _field(record[first], rest)
    if isinstance(record[name], dict):
        raise KeyError(name)
    return record[name]


def encode_labels(parts: datasets.DatasetDict, sources: Mapping[str, str], order: Sequence[str] = ()):
    """Return the parts with `label` as class ids: the classes of "train", in `order` if it has the same, or sorted.

    Raises a TrainingError that names the source: "train" has one class, or another part one that "train" lacks.
    """
    labels = parts["train"].class_encode_column("label").features["label"]
    labels = datasets.ClassLabel(names=[*order]) if sorted(order) == sorted(labels.names) else labels
    if labels.num_classes < 2:
        raise TrainingError(f"{sources['train']}: every label is {labels.names[0]!r}; expected at least two classes")
    for part, rows in parts.items():
        if unknown := sorted({*rows["label"]} - {*labels.names}):
            raise TrainingError(f"{sources[part]}: no training text has the label {unknown[0]!r}")
    return parts.cast_column("label", labels)


def split_off(rows: datasets.Dataset, share: float, seed: int = 0) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split rows at random into the larger part, and a part with a `share` of the rows.

    Raises a TrainingError if one of them would be empty.
    """
    try:
        kept, taken = rows.train_test_split(share, seed=seed).values()
    except ValueError:
        raise TrainingError(
            f"too few rows to split: {share:.0%} of {len(rows):,} leaves an empty part. Add rows, or name files for "
            "all parts"
        ) from None
    return kept, taken


def split_by(
    rows: datasets.Dataset, column: str, share: float, seed: int = 0
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split rows at random into the larger part, and a part with a `share` of the different values of a column.

    All rows with the same value are in one part: otherwise a test would ask for what was learned by heart.
    """
    values = datasets.Dataset.from_dict({"value": sorted(set(rows[column]))})
    asked = {*split_off(values, share, seed)[1]["value"]}
    is_asked = [value in asked for value in rows[column]]
    kept, taken = ([number for number, of in enumerate(is_asked) if of is wanted] for wanted in (False, True))
    return rows.select(kept), rows.select(taken)
