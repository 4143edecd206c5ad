"""Tables of files and data sets, as `datasets.Dataset`."""

import errno
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from modeling_roformer.output.console import hidden, no_warnings, sentence_of
from modeling_roformer.output.extras import needs_extra

from .batches import TEXT_COLUMN, Batch, JsonBatch, TableBatch, TextBatch, flatten
from .code_digest import code_digest
from .errors import DataError
from .formats import PARQUET, SUFFIXES, suffix_of
from .reader import as_document, named_errors, read_batches
from .values import text_of, texts_of

with needs_extra("embed", DataError):
    import datasets.config
    import pyarrow
    from datasets.exceptions import DatasetGenerationError


def load_from_hub(
    source: str | Path, split: str = "train", cache: str | Path | None = None, progress: bool = False, **options
) -> datasets.Dataset:
    """Load a split of a data set on the Hub, `NAME` or `NAME:CONFIG`, by `datasets.load_dataset`, with its options.

    Raises:
        DataError: there is no such data set, or it cannot be read.
    """
    name, _, config = str(source).partition(":")
    no_bars = hidden(
        lambda: not datasets.is_progress_bar_enabled(), datasets.disable_progress_bars, datasets.enable_progress_bars
    )
    try:
        with no_warnings("huggingface_hub"), nullcontext() if progress else no_bars:  # a warning for each attempt
            return datasets.load_dataset(name, config or None, split=split, cache_dir=cache and str(cache), **options)
    except Exception as error:  # of many types, from readers and from the Hub
        reason = sentence_of(error.__cause__ or error).rstrip(".")
        raise DataError(f"{source} is neither a file nor a data set that can be read: {reason}") from None


def table_of_files(
    files: Sequence[Path],
    cache: str | Path | None = None,
    *,
    lists: Sequence[str] = (),
    names: Sequence[str] | None = None,
    by_document: bool = False,
) -> datasets.Dataset:
    """Return all columns of files of one format.

    Values of text, JSON, CSV and TSV are strings, as `text_of` returns them; a field of an object is a column, such as
    `translation.de`. Values of Parquet have their own types.

    Args:
        files: files, as `read_batches` reads them.
        cache: folder for the Arrow files; None for the cache of `datasets`.
        lists: columns whose values may be lists; each value of theirs becomes a list of strings.
        names: names of the columns of .csv or .tsv files without a header.
        by_document: read a text file as one text.

    Raises:
        DataError: a file cannot be read, a value cannot be read as text, or there are no rows.
    """
    if SUFFIXES.get(suffix_of(files[0])) == PARQUET:
        features = _parquet_features(files)
    else:
        columns = names or dict.fromkeys(name for file in files for name in _all_names(file))
        text = datasets.Value("string")
        features = datasets.Features({name: datasets.List(text) if name in lists else text for name in columns})
    arguments = {
        "files": tuple(map(str, files)),
        "versions": tuple(map(version_of, files)),
        "columns": tuple(features),
        "lists": tuple(lists),
        "names": names and tuple(names),
        "by_document": by_document,
    }
    return from_batches(_some_rows, features, cache, arguments)


def from_batches(
    generator, features: datasets.Features, cache: str | Path | None, arguments: dict, **options
) -> datasets.Dataset:
    """Return the data set that `datasets` writes from a generator. Raises the DataError that the generator raises.

    `datasets` keeps it by the arguments, which include `code`, the digest of our code.
    """
    try:
        place = {"cache_dir": str(cache)} if cache else {}
        arguments = arguments | {"code": code_digest()}
        # `datasets` raises these for a dataset_info.json with other content; errors of the generator are wrapped.
        with named_cache(cache, AttributeError, LookupError, TypeError, ValueError):
            return datasets.Dataset.from_generator(generator, features, gen_kwargs=arguments, **place, **options)
    except DatasetGenerationError as error:
        raise DataError(sentence_of(error.__cause__ or error)) from None  # it names the file


@contextmanager
def named_cache(cache: str | Path | None, *errors: type[Exception]) -> Iterator[None]:
    """Raise a DataError that names the folder of `from_batches` in a cache if `datasets` cannot read a file there, or
    raises one of the `errors`."""
    try:
        yield
    except (pyarrow.ArrowInvalid, json.JSONDecodeError, OSError, *errors) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):  # such as a full disk
            raise
        folder = Path(cache or datasets.config.HF_DATASETS_CACHE, "generator")
        reason = sentence_of(error).rstrip(".")
        raise DataError(f"{folder} has a damaged file: remove this cache, which is made again ({reason})") from None


def version_of(path: Path) -> str:
    """Return a string that changes whenever a file is written, even if its time of modification is set back."""
    status = path.stat()
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"


def _some_rows(files: Sequence[str], **arguments) -> Iterator[dict[str, object]]:
    """Yield the rows of files. Raise a DataError if there are none: `datasets` needs one."""
    rows = _rows(files, **arguments)
    if not (first := next(rows, None)):  # none, or one without columns
        raise DataError(f"{', '.join(files)}: no rows")
    yield first
    yield from rows


def _rows(
    files: Sequence[str],
    versions: Sequence[str],
    columns: Sequence[str],
    lists: Sequence[str],
    names: Sequence[str] | None,
    by_document: bool,
    code: str,
) -> Iterator[dict[str, object]]:
    """Yield the rows of files; `versions` and `code` only make the cache differ."""
    for file in map(Path, files):
        has_types = SUFFIXES.get(suffix_of(file)) == PARQUET
        batches = read_batches(file, names=names)
        for batch in as_document(batches) if by_document else batches:
            if has_types and isinstance(batch, TableBatch):
                values = [batch.column(column) for column in columns]
                yield from (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))
            else:
                for number, row in _flat_rows(batch, columns):
                    yield {
                        name: (texts_of if name in lists else text_of)(value, batch, number, name)
                        for name, value in row.items()
                    }


def _flat_rows(batch: Batch, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the number and the values of each row. Objects may lack fields that others have."""
    if isinstance(batch, JsonBatch):
        for number, record in batch.records():
            flat = flatten(record)
            yield number, {column: flat.get(column) for column in columns}
    else:
        yield from ((number, dict(zip(columns, values, strict=True))) for number, values in batch.rows(columns))


def _all_names(file: Path) -> list[str]:
    """Return the names of all columns of a file. Every object of a JSON file is read, since it may have others."""
    names: dict[str, None] = {}
    for batch in read_batches(file):
        if isinstance(batch, TableBatch):
            return batch.names
        if isinstance(batch, TextBatch):
            return [TEXT_COLUMN]
        if isinstance(batch, JsonBatch):
            names |= dict.fromkeys(name for _, record in batch.records() for name in flatten(record))
    return [*names]


def _parquet_features(files: Sequence[Path]) -> datasets.Features:
    """Return the features of Parquet files; raise a DataError if they differ in columns, types or names of classes."""
    first, schema = files[0], _schema_of(files[0])
    features = _features_of(schema, first)
    classes = dict(_classes(features))
    for file in files[1:]:
        other = _schema_of(file)
        if not other.equals(schema):
            raise DataError(f"{file} has other columns, or of other types, than {first}")
        others = dict(_classes(_features_of(other, file)))
        for column in {**classes, **others}:
            if others.get(column) != classes.get(column):
                raise DataError(
                    f"{file}: the classes of {column} are {others.get(column)}, but {classes.get(column)} in {first}: "
                    "write both files with the same names in the same order"
                )
    return features


def _schema_of(file: Path) -> pyarrow.Schema:
    """Return the Arrow schema of a Parquet file."""
    import pyarrow.parquet

    with named_errors(file):
        return pyarrow.parquet.read_schema(file)


def _features_of(schema, file: Path) -> datasets.Features:
    """Return the features of an Arrow schema. Raise a DataError that names a column whose type `datasets` lacks."""
    features = {}
    for field in schema:
        try:
            features |= datasets.Features.from_arrow_schema(pyarrow.schema([field], schema.metadata))
        except ValueError:
            raise DataError(
                f"{file}: the column {field.name} is of type {field.type}, which is not read: write it as a string, or "
                "leave it out"
            ) from None
    return datasets.Features(features)


def _classes(feature, name: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each column of class ids, and the names of its classes, which Arrow's `equals` ignores."""
    if isinstance(feature, datasets.ClassLabel):
        yield name, feature.names
    elif isinstance(feature, dict):
        for part, inner in feature.items():
            yield from _classes(inner, f"{name}.{part}" if name else part)
    elif hasattr(feature, "feature"):  # of a list
        yield from _classes(feature.feature, name)
