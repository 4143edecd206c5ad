"""Tables of files and data sets, as `datasets.Dataset`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from ..output.console import Hidden, no_warnings, sentence_of
from ..output.extras import needs_extra
from .batches import TEXT_COLUMN, Batch, JsonBatch, TableBatch, TextBatch, flatten
from .errors import DataError
from .files import find_files, may_be_on_hub
from .formats import PARQUET, SUFFIXES, suffix_of
from .reader import as_document, check_sample_by, data_set_batches, read_batches
from .values import has_text, text_of, texts_of

with needs_extra("embed", DataError):
    import datasets
    from datasets.exceptions import DatasetGenerationError

_NO_BARS = Hidden(
    lambda: not datasets.is_progress_bar_enabled(), datasets.disable_progress_bars, datasets.enable_progress_bars
)


def load_from_hub(
    source: str | Path, split: str = "train", cache: str | Path | None = None, progress: bool = False, **options
) -> datasets.Dataset:
    """Load a split of a data set on the Hub, `NAME` or `NAME:CONFIG`, by `datasets.load_dataset`, with its options.

    Raises:
        DataError: there is no such data set, or it cannot be read.
    """
    name, _, config = str(source).partition(":")
    try:
        with no_warnings("huggingface_hub"), nullcontext() if progress else _NO_BARS:  # a warning for each attempt
            return datasets.load_dataset(name, config or None, split=split, cache_dir=cache and str(cache), **options)
    except Exception as error:  # of many types, from readers and from the Hub
        reason = sentence_of(error.__cause__ or error).rstrip(".")
        raise DataError(f"{source} is neither a file nor a data set that can be read: {reason}") from None


def load_data(
    source: str | Path,
    split: str = "train",
    cache: str | Path | None = None,
    *,
    lists: Sequence[str] = (),
    **options,
) -> datasets.Dataset:
    """Load all columns of a file, or of a split of a data set.

    Values of text, JSON, CSV and TSV are strings, as `text_of` returns them; a field of an object is a column, such as
    `translation.de`. Values of Parquet and of data sets on the Hub have their own types.

    Args:
        source: a file, as `read_batches` reads it; a folder of files, see `find_files`; or a data set on the Hub, NAME
            or NAME:CONFIG.
        split: split of a folder or a data set; a file has none.
        cache: folder for the Arrow files; None for the cache of `datasets`.
        lists: columns whose values may be lists; each value of theirs becomes a list of strings.
        options: `column_names` of a .csv or .tsv file without a header; `sample_by="document"`, to read a text file as
            one text; of a data set on the Hub, those of `datasets.load_dataset`.

    Raises:
        DataError: the source cannot be read, or a value is no text.
    """
    if may_be_on_hub(source):
        return load_from_hub(source, split, cache, progress=True, **options)
    files = find_files([source], split)
    names, by_document = _options_of_files(source, options)
    if SUFFIXES.get(suffix_of(files[0])) == PARQUET:
        features = datasets.Features.from_arrow_schema(_parquet_schema(files))
    else:
        columns = names or list(dict.fromkeys(name for file in files for name in _all_names(file)))
        if not columns:
            raise DataError(f"{source} has no rows")
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
    """Return the data set that `datasets` writes from a generator. Raises the DataError that the generator raises."""
    try:
        place = {"cache_dir": str(cache)} if cache else {}
        return datasets.Dataset.from_generator(generator, features, gen_kwargs=arguments, **place, **options)
    except DatasetGenerationError as error:
        raise DataError(sentence_of(error.__cause__ or error)) from None  # it names the file


def load_texts(
    source: str | Path,
    columns: Mapping[str, str] | Sequence[str],
    split: str = "train",
    *,
    lists: Sequence[str] = (),
    **options,
) -> datasets.Dataset:
    """Load columns of a file or a data set as strings, as `text_of` returns them: values of .csv and .tsv as they are
    written, such as 01, other numbers as Python prints them, and class ids by their names.

    Args:
        columns: names of the columns, or the new name of each column -> its name in the source. A field of an object is
            a column, such as `translation.de`.
        lists: new names of the columns whose values may be lists; each value of theirs becomes a list of strings.
        source, split, options: see `load_data`.

    Raises:
        DataError: there is no such column, or a value is missing, blank or no text. It names source, column and row.
    """
    named = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    texts: dict[str, list] = {name: [] for name in named}
    has_rows = False
    for batch in _batches(source, [*named.values()], split, options):
        for number, values in batch.rows([*named.values()]):
            has_rows = True
            for (name, column), value in zip(named.items(), values, strict=True):
                read = texts_of if name in lists else text_of
                text = read(value, batch, number, column)
                parts = text if isinstance(text, list) else [text]
                if not parts or not all(map(has_text, parts)):
                    raise DataError(f"{batch.where(number, column)} is empty: fill it, or remove the row")
                texts[name].append(text)
    if not has_rows:
        raise DataError(f"{source} has no rows")
    kind = datasets.Value("string")
    features = datasets.Features({name: datasets.List(kind) if name in lists else kind for name in texts})
    return datasets.Dataset.from_dict(texts, features)


def version_of(path: Path) -> str:
    """Return what changes whenever a file is written, even if its time of modification is set back."""
    found = path.stat()
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def _batches(source: str | Path, columns: Sequence[str], split: str, options: Mapping) -> Iterator[Batch]:
    if may_be_on_hub(source):
        yield from data_set_batches(load_from_hub(source, split, progress=True, **options), columns, str(source))
        return
    names, by_document = _options_of_files(source, options)
    for file in find_files([source], split):
        batches = read_batches(file, columns, names=names)
        yield from as_document(batches) if by_document else batches


def _options_of_files(source: str | Path, options: Mapping) -> tuple[Sequence[str] | None, bool]:
    """Return the names of columns, and whether a text file is one text. Raise a DataError for an option of the Hub."""
    if unknown := {*options} - {"cache", "column_names", "sample_by"}:  # nothing is cached of texts
        raise DataError(f"{source} is no data set on the Hub: the option {min(unknown)} has no meaning")
    check_sample_by(by := options.get("sample_by", "line"))
    return options.get("column_names"), by == "document"


def _some_rows(files: Sequence[str], **arguments) -> Iterator[dict[str, object]]:
    """Yield the rows of files; raise a DataError if there is none, which `datasets` does not take."""
    rows = _rows(files, **arguments)
    if (first := next(rows, None)) is None:
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
) -> Iterator[dict[str, object]]:
    """Yield the rows of files; `versions` only make the cache differ."""
    for file in map(Path, files):
        has_types = SUFFIXES.get(suffix_of(file)) == PARQUET
        batches = read_batches(file, names=names)
        for batch in as_document(batches) if by_document else batches:
            if has_types and isinstance(batch, TableBatch):
                values = [batch.values_of(column) for column in columns]
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
        for number, record in batch.records(columns):
            flat = flatten(record)
            yield number, {column: flat.get(column) for column in columns}
    else:
        yield from ((number, dict(zip(columns, values, strict=True))) for number, values in batch.rows(columns))


def _all_names(file: Path) -> list[str]:
    """Return the names of all columns of a file: those of every object of a JSON file."""
    found: dict[str, None] = {}
    for batch in read_batches(file):
        if isinstance(batch, TableBatch):
            return batch.names
        if isinstance(batch, TextBatch):
            return [TEXT_COLUMN]
        if isinstance(batch, JsonBatch):
            found |= dict.fromkeys(name for _, record in batch.records() for name in flatten(record))
    return [*found]


def _parquet_schema(files: Sequence[Path]):
    """Return the schema of Parquet files, which is that of all."""
    import pyarrow.parquet

    schemas = {file: pyarrow.parquet.read_schema(file) for file in files}
    first = next(iter(schemas))
    if other := next((file for file, schema in schemas.items() if not schema.equals(schemas[first])), None):
        raise DataError(f"{other} has other columns, or of other types, than {first}")
    return schemas[first]
