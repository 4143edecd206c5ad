"""Reader of files with data, in batches. This is the only code that opens one.

Lines end with "\\n" or "\\r\\n"; a "\\r" alone is a character of a text.
"""

import csv
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.files.reading import unique_fields
from modeling_roformer.output.console import report_once, sentence_of
from modeling_roformer.output.extras import needs_extra

from .batches import NOT_UTF8, TEXT_COLUMN, Batch, DocumentBatch, JsonLineBatch, JsonListBatch, TableBatch, TextBatch
from .errors import DataError
from .formats import (
    CSV,
    JSON,
    PARQUET,
    SUFFIXES,
    TEXT,
    TSV,
    check_head,
    check_line_ends,
    check_name,
    is_gzip,
    looks_like_json,
    suffix_of,
)

if TYPE_CHECKING:
    import datasets

CHUNK = 4 << 20  # bytes of lines in a batch, after decompression
BATCH_ROWS = 1024  # of a table
SAMPLE_BY = ("line", "document")  # what is a text in a text file
_HEAD = 1 << 16  # bytes that are looked at before a file is read
_BUFFER = 1 << 20  # bytes of a Parquet column in memory at once; without it, columns are read whole


def read_batches(
    file: str | Path, columns: Sequence[str] | None = None, size: int | None = None, names: Sequence[str] | None = None
) -> Iterator[Batch]:
    """Yield a file in batches, with about one of them in memory. A JSON file that is one list is read whole.

    Args:
        file: text, JSON Lines, JSON, CSV or TSV in UTF-8, also compressed (.gz), or Parquet. A pipe is read once.
        columns: the columns that are needed; None for all. Others of Parquet are not read.
        size: bytes of lines per batch; default: `CHUNK`.
        names: names of the columns of a CSV or TSV file without a header; if empty, the columns are called 0, 1 and so
            on.

    Raises:
        DataError: the file does not exist, is of a format that is not read, or is damaged; or `columns` has fields of
            JSON, but by its name the file is text.

    >>> [text for batch in read_batches("laws.jsonl.gz") for _, [text] in batch.rows(["text"])]
    """
    path = Path(file)
    check_name(path)
    format_ = SUFFIXES.get(suffix_of(path))
    with named_errors(path):
        if format_ == PARQUET:
            with needs_extra("embed", DataError):
                import pyarrow.parquet
            # `pre_buffer` would keep what was read, up to the whole file.
            with pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as table:
                yield from _parquet_batches(table, path, columns)
            return
        with BufferedReader(FileIO(path), _HEAD) as stored:
            lines: gzip.GzipFile | BufferedReader[FileIO] = gzip.GzipFile(fileobj=stored) if is_gzip(path) else stored
            check_head(path, lines.peek(_HEAD))
            if format_ in (CSV, TSV):
                yield from _table_batches(stored, lines, path, format_, names)
            else:
                yield from _line_batches(stored, lines, path, size or CHUNK, columns)


def check_sample_by(sample_by: str) -> None:
    """Raise a DataError if there is no such unit of a text file."""
    if sample_by not in SAMPLE_BY:
        raise DataError(f"sample_by is {sample_by!r}; expected one of {', '.join(SAMPLE_BY)}")


def as_document(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the lines of a text file as one batch, a `DocumentBatch`, and batches of other files as they are."""
    lines: list[TextBatch] = []
    for batch in batches:
        if isinstance(batch, TextBatch):
            lines.append(batch)
        else:
            lines.clear()  # blank lines before the first object are not rows
            yield batch
    if lines:
        data = b"".join(batch.data for batch in lines)
        yield DocumentBatch(lines[0].source, 1, sum(batch.consumed for batch in lines), data)


def first_row(file: str | Path) -> list[str]:
    """Return the first row of a CSV or TSV file, which may be its header."""
    for batch in read_batches(file, names=()):
        if isinstance(batch, TableBatch):
            return [str(value) for value in next(batch.rows(batch.names))[1]]
    return []


def data_set_batches(
    rows: "datasets.Dataset", columns: Sequence[str], name: str = "the data set"
) -> Iterator[TableBatch]:
    """Yield columns of a data set in batches; `name` is its name in errors."""
    names = rows.column_names
    roots = _roots(columns, names)
    features = _stored_features(rows.features.arrow_schema)
    share = rows.data.nbytes / max(1, len(rows))
    if roots:
        formatted = rows.select_columns(roots).with_format("arrow")
        for start in range(0, len(rows), BATCH_ROWS):
            table = formatted[start : start + BATCH_ROWS]
            arrays = dict(zip(roots, (table[root] for root in roots), strict=True))
            yield TableBatch(name, start + 1, share * len(table), names, arrays, features)
    else:
        yield TableBatch(name, 1, 0, names)  # its `rows` refuses the columns


def _line_batches(stored, lines, path: Path, size: int, columns: Sequence[str] | None) -> Iterator[Batch]:
    format_ = SUFFIXES.get(suffix_of(path))
    line, consumed = 1, 0
    batch_class = None
    while data := lines.read(size) + lines.readline():
        position = stored.tell() if stored.seekable() else 0  # a pipe has no known length
        if line == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
            check_line_ends(path, data)
        if batch_class is None and not data.isspace():
            # Without a known suffix, the first line that is not blank decides. A damaged object is refused by
            # `JsonLineBatch.rows`.
            start = data.lstrip()
            first_line = start.partition(b"\n")[0].rstrip()
            batch_class = TextBatch
            if format_ == TEXT:
                if looks_like_json(first_line):
                    _report_json_in_text(path, columns)
            elif format_ == JSON or looks_like_json(first_line):
                if first_line.startswith(b"["):  # one list of objects
                    yield from _list_batches(start + lines.read(), path, stored)
                    return
                batch_class = JsonLineBatch
        yield (batch_class or TextBatch)(str(path), line, position - consumed, data)
        line, consumed = line + data.count(b"\n"), position


def _report_json_in_text(path: Path, columns: Sequence[str] | None) -> None:
    """Say that a text file with JSON is read as text. Raise a DataError if a field is needed."""
    advice = "if it holds JSON, let its name end in .jsonl or .json"
    if fields := [column for column in columns or () if column != TEXT_COLUMN]:
        raise DataError(f"{path} is a text file by its name, without a column {fields[0]!r}: {advice}")
    report_once(f"{path} is read as text, by its name: {advice}")


def _list_batches(data: bytes, path: Path, stored) -> Iterator[JsonListBatch]:
    objects = json.loads(TextBatch(str(path), 1, 0, data).text(), object_pairs_hook=unique_fields)
    share = (stored.tell() if stored.seekable() else 0) / max(1, len(objects))
    for start in range(0, len(objects), BATCH_ROWS):
        batch = objects[start : start + BATCH_ROWS]
        yield JsonListBatch(str(path), start + 1, share * len(batch), batch)


def _table_batches(stored, lines, path: Path, format_: str, names: Sequence[str] | None) -> Iterator[TableBatch]:
    with needs_extra("embed", DataError):
        import pandas

    check_line_ends(path, lines.peek(_HEAD))
    # Quotes are part of a text in TSV. "NA" is a text like any other.
    dialect = {"sep": "\t", "quoting": csv.QUOTE_NONE} if format_ == TSV else {}
    try:
        frames = pandas.read_csv(
            _WholeLines(lines),
            header=None,
            dtype=str,
            na_filter=False,
            lineterminator="\n",
            chunksize=BATCH_ROWS,
            **dialect,
        )
    except pandas.errors.EmptyDataError:
        return
    first, consumed = 1, 0
    for frame in frames:
        columns = _columns_of(frame)
        if not columns[0]:
            continue
        if names is None:
            names = _checked_names(path, [column.pop(0) for column in columns])
        names = names or [*map(str, range(len(columns)))]
        if len(names) != len(columns):
            raise DataError(f"{path} has {len(columns)} columns; expected {len(names)}: {', '.join(names)}")
        position = stored.tell() if stored.seekable() else 0
        yield TableBatch(str(path), first, position - consumed, [*names], dict(zip(names, columns, strict=True)))
        first, consumed = first + len(columns[0]), position


class _WholeLines(TextIOWrapper):
    """Text that is read in whole lines: pandas loses blanks at the start of a line if a read ends there."""

    def __init__(self, lines):
        super().__init__(lines, encoding="utf-8-sig", newline="\n")

    def read(self, size: int | None = -1, /) -> str:
        """Read at most `size` bytes, but for a very long line, up to the end of a line."""
        return super().read(size // 4 if size else size) + self.readline()  # a character has up to 4 bytes


def _columns_of(frame) -> list[list[str]]:
    """Return the columns of a frame that was read with "\n" as the end of lines.

    "\r\n" left a "\r" in the last value, and a blank line became a row of a "\r" alone.
    """
    columns = [frame[column].tolist() for column in frame.columns]
    if "\r" in columns[0]:
        rows = [row for row in zip(*columns, strict=True) if row[0] != "\r" or any(row[1:])]
        columns = [[row[place] for row in rows] for place in range(len(columns))]
    for row, last in enumerate(columns[-1]):
        if not last:  # perhaps a row with fewer values than there are columns
            column = next((column for column in reversed(columns) if column[row]), columns[-1])
            column[row] = column[row].removesuffix("\r")
    columns[-1] = [value.removesuffix("\r") for value in columns[-1]]
    return columns


def _checked_names(path: Path, names: Sequence[str]) -> list[str]:
    """Return the names of columns; unnamed ones are called as pandas calls them."""
    if twice := next((name for place, name in enumerate(names) if name and name in names[:place]), None):
        raise DataError(f"{path} has two columns {twice!r}: rename one")
    return [name or f"Unnamed: {place}" for place, name in enumerate(names)]


def _parquet_batches(table, path: Path, columns: Sequence[str] | None) -> Iterator[TableBatch]:
    names = table.schema_arrow.names
    _checked_names(path, names)
    roots = names if columns is None else _roots(columns, names)
    features = _stored_features(table.schema_arrow)
    first, share = 1, path.stat().st_size / max(1, table.metadata.num_rows)
    for batch in table.iter_batches(BATCH_ROWS, columns=roots):
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        yield TableBatch(str(path), first, share * len(batch), names, arrays, features)
        first += len(batch)


def _roots(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the top-level columns of columns and fields, each once. Missing ones are left out: `rows` refuses them."""
    roots = dict.fromkeys(column if column in names else column.partition(".")[0] for column in columns)
    return [root for root in roots if root in names]


def _stored_features(schema) -> dict:
    """Return the features that `datasets` stores in the metadata of an Arrow schema."""
    try:
        return json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, LookupError, TypeError):
        return {}


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn the errors of reading a file into a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except UnicodeDecodeError:
        raise DataError(f"{path}: {NOT_UTF8}") from None
    except Exception as error:  # of many types, from pandas, pyarrow, gzip, json and the system
        raise DataError(f"{path} cannot be read: {sentence_of(error).rstrip('.')}") from None
