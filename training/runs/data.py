"""Data for training: labelled texts of files and data sets, and how they are split."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import datasets

from modeling_roformer.data import Batch, DataError, find_files, has_text, may_be_on_hub, read_batches, text_of
from modeling_roformer.data.data_sets import load_from_hub, table_of_files
from modeling_roformer.data.reader import as_document, check_sample_by, data_set_batches
from modeling_roformer.data.values import texts_of

from ..errors import TrainingError, raises_training_error


@raises_training_error()
def load_data(
    source: str | Path,
    split: str = "train",
    cache: str | Path | None = None,
    *,
    lists: Sequence[str] = (),
    **options,
) -> datasets.Dataset:
    """Load all columns of a file, or of a split of a data set.

    Values of text, JSON, CSV and TSV are strings; a field of an object is a column, such as `translation.de`. Values of
    Parquet and of data sets on the Hub have their own types.

    Args:
        source: a .csv, .tsv, .jsonl, .json or .parquet file, or text in UTF-8; all but .parquet may be compressed
            (.gz). A file of another suffix whose first line is a JSON object is JSON Lines. Or a folder of such files,
            or a data set on the Hub, NAME or NAME:CONFIG.
        split: split of a folder or a data set; a file has none.
        cache: folder for the Arrow files; None for the cache of `datasets`.
        lists: columns whose values may be lists; each value of theirs becomes a list of strings.
        options: `column_names` of a .csv or .tsv file without a header; `sample_by="document"`, to read a text file as
            one text; of a data set on the Hub, those of `datasets.load_dataset`.

    Raises a TrainingError that names the source if it cannot be read.
    """
    if may_be_on_hub(source):
        return load_from_hub(source, split, cache, progress=True, **options)
    files = find_files([source], split)
    names, by_document = _options_of_files(source, options)
    return table_of_files(files, cache, lists=lists, names=names, by_document=by_document)


@raises_training_error()
def load_texts(
    source: str | Path,
    columns: Mapping[str, str] | Sequence[str],
    split: str = "train",
    *,
    lists: Sequence[str] = (),
    may_be_empty: bool = False,
    named_by: Sequence[str] = (),
    **options,
) -> datasets.Dataset:
    """Load columns of a file or a data set as strings: values of .csv and .tsv as they are written, such as 01, numbers
    and booleans of JSON as Python's `str` prints them, and class ids by their names.

    Args:
        columns: names of the columns, or the new name of each column -> its name in the source. A field of an object is
            a column, such as `translation.de`.
        lists: new names of the columns whose values may be lists; each value of theirs becomes a list of strings.
        may_be_empty: whether their lists may be empty.
        named_by: the command-line options that name the columns, in the same order, for errors.
        source, split, options: see `load_data`.

    Raises a TrainingError that names source, column and row: there is no such column, or a value is missing or blank,
    or cannot be read as text.
    """
    named = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    texts: dict[str, list] = {name: [] for name in named}
    has_rows = False
    for batch in batches_of(source, [*named.values()], split, options):
        for number, values in batch.rows([*named.values()], named_by):
            has_rows = True
            for (name, column), value in zip(named.items(), values, strict=True):
                read = texts_of if name in lists else text_of
                text = read(value, batch, number, column)
                parts = text if isinstance(text, list) else [text]
                if not (parts or may_be_empty) or not all(map(has_text, parts)):
                    raise TrainingError(f"{batch.where(number, column)} is empty: fill it, or remove the row")
                texts[name].append(text)
    if not has_rows:
        raise TrainingError(f"{source} has no rows")
    string = datasets.Value("string")
    features = datasets.Features({name: datasets.List(string) if name in lists else string for name in texts})
    return datasets.Dataset.from_dict(texts, features)


def place_of(
    source: str | Path, column: str, is_wrong: Callable[[str | None], bool], split: str = "train", **options
) -> str:
    """Return the file, the row and the column of the first text that is wrong, for an error; the source if it has none.
    Texts in lists are looked at too.

    Args:
        source, split, options: see `load_data`.
        column: name of the column in the source.
        is_wrong: function that returns whether a text is wrong.
    """
    with suppress(DataError):
        for batch in batches_of(source, [column], split, options):
            for number, [value] in batch.rows([column]):
                if any(map(is_wrong, texts_of(value, batch, number, column))):
                    return batch.where(number, column)
    return str(source)


def batches_of(
    source: str | Path, columns: Sequence[str], split: str, options: Mapping[str, object]
) -> Iterator[Batch]:
    """Yield the batches of a source, with some of its columns; see `load_data` for the arguments."""
    if may_be_on_hub(source):
        yield from data_set_batches(load_from_hub(source, split, progress=True, **options), columns, str(source))
        return
    names, by_document = _options_of_files(source, options)
    for file in find_files([source], split):
        batches = read_batches(file, columns, names=names)
        yield from as_document(batches) if by_document else batches


def _options_of_files(source: str | Path, options: Mapping) -> tuple[Sequence[str] | None, bool]:
    """Return the names of columns, and whether a text file is one text; raise TrainingError for an option of the
    Hub."""
    if unknown := {*options} - {"cache", "column_names", "sample_by"}:  # `load_texts` caches nothing of files
        raise TrainingError(f"{source} is not a data set on the Hub: the option {min(unknown)} has no meaning")
    sample_by = options.get("sample_by", "line")
    check_sample_by(sample_by)
    return options.get("column_names"), sample_by == "document"


def split_off(rows: datasets.Dataset, share: float, seed: int = 0) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split rows at random into the larger part, and a part with a `share` of the rows.

    Raises a TrainingError if one of them would be empty.
    """
    try:
        kept, taken = rows.train_test_split(share, seed=seed).values()
    except ValueError:
        raise TrainingError(
            f"too few rows to split: {share:.0%} of {len(rows):,} leaves an empty part. Add rows, or name files "
            "for all parts by --validation and --test"
        ) from None
    return kept, taken


def split_missing(parts: datasets.DatasetDict, column: str | None = None) -> datasets.DatasetDict:
    """Return the splits "train", "validation" and "test" where "train" is given: alone, it is split 6:2:2, and with
    "test", 3:1. Without "test", "validation" is all that is evaluated, and is never split off. Rows with the same value
    of the `column`, if it is given, stay together."""
    parts = datasets.DatasetDict(parts)
    if "validation" not in parts:
        for part, share in ("test", 0.2), ("validation", 0.25):
            if part not in parts:
                rows = parts["train"]
                parts["train"], parts[part] = split_by(rows, column, share) if column else split_off(rows, share)
    return parts


def split_by(
    rows: datasets.Dataset, column: str, share: float, seed: int = 0
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split rows at random into the larger part, and a part with a `share` of the different values of a column.

    All rows with the same value are in one part: otherwise a test would ask for what was learned by heart.
    """
    values = datasets.Dataset.from_dict({"value": sorted(set(rows[column]))})
    chosen = {*split_off(values, share, seed)[1]["value"]}
    is_chosen = [value in chosen for value in rows[column]]
    kept = [number for number, taken in enumerate(is_chosen) if not taken]
    taken = [number for number, taken in enumerate(is_chosen) if taken]
    return rows.select(kept), rows.select(taken)
