"""Rows of one file, in batches. This is the only code that opens a file with data.

A batch can be pickled, and is parsed only when its rows are asked for: a process reads the file, and others parse.
Lines end with "\\n" or "\\r\\n"; a "\\r" alone is a character of a text.
"""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, FileIO, TextIOWrapper
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING

from ..output.console import sentence_of
from ..output.extras import needs_extra
from .errors import DataError
from .files import missing_file
from .formats import (
    CSV,
    PARQUET,
    SUFFIXES,
    TSV,
    check_head,
    check_name,
    has_json_objects,
    is_gzip,
    is_json_list,
    suffix_of,
)

if TYPE_CHECKING:
    import datasets
    import pyarrow

CHUNK = 4 << 20  # bytes of lines in a batch, after decompression
LONGEST_LINE = 16 << 20  # bytes; limits the memory of a line
ROWS = 1024  # of a table in a batch
TEXT_COLUMN = "text"  # name of the only column of a text file
_HEAD = 1 << 16  # bytes that are looked at before a file is read
_BUFFER = 1 << 20  # bytes of a Parquet column in memory at once; without it, columns are read whole
_GBK = "`iconv -f GB18030 -t UTF-8` converts GBK"
_ONLY_CR = 'its lines end with "\\r" alone: convert it, for example with `mac2unix`'

Row = tuple[int, list[object]]  # the number from 1, and a value for each column that was asked for


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a source.

    `source` is the file or data set, as errors name it. `first_row` is the number of the first row, from 1: of a line,
    or of a row of a table without its header. `consumed` is the number of bytes of the stored file that were read for
    it, after those of the batch before.
    """

    source: str
    first_row: int
    consumed: float
    unit = "row"  # what `first_row` counts, as errors name it

    def rows(self, columns: Sequence[str], options: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the rows with the values of columns, as they are stored. A field of an object is a column, such as
        `translation.de`.

        Args:
            columns: names of columns.
            options: the command-line options that name them, for errors.

        Raises:
            DataError: a row has no such column, or cannot be parsed.
        """
        raise NotImplementedError

    def place(self, row: int) -> str:
        """Return the name of a row in errors."""
        return f"{self.source}, {self.unit} {row}"

    def where(self, row: int, column: str) -> str:
        """Return the name of a value in errors."""
        return f"{self.place(row)}: {column}"


@dataclass(frozen=True)
class LineBatch(Batch):
    """Whole lines of a file."""

    data: bytes = field(repr=False, default=b"")
    unit = "line"

    def text(self) -> str:
        """Return all lines in one text, with the last line end."""
        try:
            return self.data.decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = self.first_row + self.data.count(b"\n", 0, error.start)
            raise DataError(f"{self.place(line)}: not UTF-8; {_GBK}") from None

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line."""
        return enumerate(self.text().removesuffix("\n").split("\n"), self.first_row)


@dataclass(frozen=True)
class TextBatch(LineBatch):
    """Lines of a text file. The only column is `text`."""

    def rows(self, columns: Sequence[str], options: Sequence[str] = ()) -> Iterator[Row]:
        """Yield each line."""
        for column, option in _with_options(columns, options):
            if column != TEXT_COLUMN:
                raise DataError(f"{self.source} is a text file, without a column {column!r}{_advice(option)}")
        return ((number, [line] * len(columns)) for number, line in self.lines())


@dataclass(frozen=True)
class DocumentBatch(TextBatch):
    """All lines of a text file, which are one text."""

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the text."""
        yield self.first_row, self.text()


@dataclass(frozen=True)
class JsonBatch(Batch):
    """Objects of a JSON file."""

    def records(self, columns: Sequence[str] = ()) -> Iterator[tuple[int, dict]]:
        """Yield the number and the object of each row. None of `columns` may be named twice in an object."""
        raise NotImplementedError

    def rows(self, columns: Sequence[str], options: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the fields of each object."""
        for number, record in self.records(columns):
            yield number, _fields(record, columns, options, partial(self.place, number))


@dataclass(frozen=True)
class JsonLineBatch(LineBatch, JsonBatch):
    """Lines of JSON Lines. Blank lines are no rows."""

    def records(self, columns: Sequence[str] = ()) -> Iterator[tuple[int, dict]]:
        """Yield the number and the object of each line."""
        names = [json.dumps(name, ensure_ascii=False) for column in columns for name in {column, *column.split(".")}]
        for number, line in self.lines():
            if not line or line.isspace():
                continue
            # Most lines have each name once; only others are parsed with the hook, which is slow.
            is_suspect = any(line.count(name) > 1 for name in names)
            hook = _pairs_of(self.place(number), columns) if is_suspect else None
            try:
                record = json.loads(line, object_pairs_hook=hook)
            except DataError:
                raise
            except (ValueError, RecursionError):
                raise DataError(f"{self.place(number)}: not JSON; JSON Lines have one object per line") from None
            if not isinstance(record, dict):
                raise DataError(f"{self.place(number)}: not an object with fields")
            yield number, record


@dataclass(frozen=True)
class JsonListBatch(JsonBatch):
    """Objects of a JSON file that is one list."""

    objects: list[dict] = field(repr=False, default_factory=list)

    def records(self, columns: Sequence[str] = ()) -> Iterator[tuple[int, dict]]:
        """Yield the number and the object of each row."""
        return enumerate(self.objects, self.first_row)


@dataclass(frozen=True)
class TableBatch(Batch):
    """Rows of a table. `names` are those of all its columns. `table` has those that were read, as arrays of Arrow or
    lists of strings; `features` are those that `datasets` stored, if it did."""

    names: list[str] = field(repr=False, default_factory=list)
    table: "Mapping[str, list[str] | pyarrow.Array]" = field(repr=False, default_factory=dict)
    features: dict = field(repr=False, default_factory=dict)

    def rows(self, columns: Sequence[str], options: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the values of columns. A class id is the name of its class."""
        values = []
        for column, option in _with_options(columns, options):
            root = column if column in self.table else column.partition(".")[0]
            if root not in self.table:
                raise DataError(_no_column(self.source, column, self.names, option))
            found = self.values_of(root)
            if root != column:
                found = [_field({root: value}, column, option, lambda: self.source) for value in found]
            if classes := self._classes(column):
                found = [classes[id_] if isinstance(id_, int) and 0 <= id_ < len(classes) else None for id_ in found]
            values.append(found)
        for number, row in enumerate(zip(*values, strict=True), self.first_row):
            yield number, [*row]

    def values_of(self, name: str) -> list:
        """Return the values of one of the columns that were read, as they are stored."""
        column = self.table[name]
        try:
            return column if isinstance(column, list) else column.to_pylist()
        except UnicodeDecodeError:
            rows = f"rows {self.first_row:,} to {self.first_row + len(column) - 1:,}"
            raise DataError(f"{self.source}, {rows}: a text that is not UTF-8: store such values as binary") from None

    def _classes(self, column: str) -> list[str]:
        """Return the names of the classes of a column of class ids."""
        feature = self.features.get(column)
        if feature is None:
            feature = self.features
            for part in column.split("."):
                feature = feature.get(part, {}) if isinstance(feature, dict) else {}
        return feature.get("names", []) if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else []


def read_batches(
    file: str | Path, columns: Sequence[str] | None = None, size: int | None = None, names: Sequence[str] | None = None
) -> Iterator[Batch]:
    """Yield a file in batches, with about one of them in memory. A JSON file that is one list is read whole.

    Args:
        file: text, JSON Lines, JSON, CSV or TSV in UTF-8, also compressed (.gz), or Parquet. A pipe is read once.
        columns: the columns that are needed of Parquet; None for all.
        size: bytes of lines per batch; default: `CHUNK`.
        names: names of the columns of a CSV or TSV file without a header; if empty, the columns are called 0, 1 and so
            on.

    Raises:
        DataError: the file does not exist, is of a format that is not read, or is damaged.

    >>> [text for batch in read_batches("laws.jsonl.gz") for _, [text] in batch.rows(["text"])]
    """
    path = Path(file)
    check_name(path)
    format_ = SUFFIXES.get(suffix_of(path))
    with _named_errors(path):
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
                yield from _line_batches(stored, lines, path, size or CHUNK)


def as_document(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the lines of a text file as one batch, a `DocumentBatch`, and batches of other files as they are."""
    lines: list[TextBatch] = []
    for batch in batches:
        if isinstance(batch, TextBatch):
            lines.append(batch)
        else:
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


def flatten(record: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of an object, those of objects in it by names such as `translation.de`."""
    found: dict[str, object] = {}
    for name, value in record.items():
        if isinstance(value, dict) and value:
            found |= {f"{name}.{inner}": of for inner, of in flatten(value).items()}
        else:
            found[name] = value
    return found


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
        for start in range(0, len(rows), ROWS):
            table = formatted[start : start + ROWS]
            arrays = dict(zip(roots, (table[root] for root in roots), strict=True))
            yield TableBatch(name, start + 1, share * len(table), names, arrays, features)
    else:
        yield TableBatch(name, 1, 0, names)  # whose rows refuse the columns


def _line_batches(stored, lines, path: Path, size: int) -> Iterator[Batch]:
    line, consumed, kind = 1, 0, None
    while data := _whole_lines(lines, path, line, size):
        position = stored.tell() if stored.seekable() else 0  # a pipe has no known length
        if line == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
            if b"\n" not in data and b"\r" in data.rstrip(b"\r\n"):
                raise DataError(f"{path}: {_ONLY_CR}")
        if kind is None and not data.isspace():
            # The first line that is not blank decides. A damaged object is refused by `JsonLineBatch.rows`.
            start = data.lstrip()
            first_line = start.partition(b"\n")[0].rstrip()
            kind = TextBatch
            if has_json_objects(first_line, suffix_of(path)):
                if is_json_list(first_line):
                    yield from _list_batches(start + lines.read(), path, stored)
                    return
                kind = JsonLineBatch
        yield (kind or TextBatch)(str(path), line, position - consumed, data)
        line, consumed = line + data.count(b"\n"), position


def _whole_lines(lines, path: Path, first_line: int, size: int) -> bytes:
    data = lines.read(size)
    if data and not data.endswith(b"\n"):
        rest = lines.readline(LONGEST_LINE)
        if len(rest) == LONGEST_LINE:
            number = first_line + data.count(b"\n")
            limit = f"{LONGEST_LINE >> 20} MiB"
            raise DataError(f"{path}, line {number}: longer than {limit}; write one document per line")
        data += rest
    return data


def _list_batches(data: bytes, path: Path, stored) -> Iterator[JsonListBatch]:
    try:
        objects = json.loads(data.decode("utf-8"), object_pairs_hook=_pairs_of(str(path), None))
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise DataError(f"{path}, line {line}: not UTF-8; {_GBK}") from None
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}; expected one list of objects, or one object per line") from None
    for number, record in enumerate(objects, 1):
        if not isinstance(record, dict):
            raise DataError(f"{path}, row {number}: not an object with fields")
    share = (stored.tell() if stored.seekable() else 0) / max(1, len(objects))
    for start in range(0, len(objects), ROWS):
        some = objects[start : start + ROWS]
        yield JsonListBatch(str(path), start + 1, share * len(some), some)


def _table_batches(stored, lines, path: Path, format_: str, names: Sequence[str] | None) -> Iterator[TableBatch]:
    with needs_extra("embed", DataError):
        import pandas

    head = lines.peek(_HEAD)
    if b"\r" in head.rstrip(b"\r\n") and b"\n" not in head:
        raise DataError(f"{path}: {_ONLY_CR}")
    # Quotes are part of a text in TSV. "NA" is a text like any other.
    kind = {"sep": "\t", "quoting": csv.QUOTE_NONE} if format_ == TSV else {}
    try:
        frames = pandas.read_csv(
            _WholeLines(lines),
            header=None,
            dtype=str,
            na_filter=False,
            lineterminator="\n",
            chunksize=ROWS,
            **kind,
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
    for batch in table.iter_batches(ROWS, columns=roots):
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        yield TableBatch(str(path), first, share * len(batch), names, arrays, features)
        first += len(batch)


def _roots(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names of the columns, each once, that hold others or fields of them. `rows` refuses missing ones."""
    roots = dict.fromkeys(column if column in names else column.partition(".")[0] for column in columns)
    return [root for root in roots if root in names]


def _stored_features(schema) -> dict:
    """Return the features that `datasets` stores in the metadata of an Arrow schema."""
    try:
        return json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, LookupError, TypeError):
        return {}


def _fields(record: dict, columns: Sequence[str], options: Sequence[str], where: Callable[[], str]) -> list[object]:
    """Return the values of columns of an object; `where` returns its name in errors."""
    if all(column in record for column in columns):  # nearly always, so it is fast
        return [record[column] for column in columns]
    return [_field(record, column, option, where) for column, option in _with_options(columns, options)]


def _field(record: object, column: str, option: str, where: Callable[[], str]) -> object:
    """Return the value of a column, which may be a field of an object in the object. A field of null is null."""
    value: object = record
    rest = column
    while rest and isinstance(value, dict):
        name = rest if rest in value else rest.partition(".")[0]
        if name not in value:
            break
        value, rest = value[name], rest[len(name) + 1 :]
    if rest and value is not None:
        names = [*flatten(record)] if isinstance(record, dict) else []
        raise DataError(_no_column(where(), column, names, option))
    return value


def _no_column(where: str, column: str, names: Sequence[str], option: str) -> str:
    return f"{where} has no column {column!r}, only {', '.join(names) or 'none'}{_advice(option)}"


def _advice(option: str) -> str:
    return f": name the column with {option}" if option else ""


def _with_options(columns: Sequence[str], options: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(columns, chain(options, repeat("")))  # noqa: B905, the second is endless


def _pairs_of(where: str, columns: Sequence[str] | None):
    """Return the hook of `json` that refuses an object which names one of the columns twice; None is for all."""

    def pairs(found: list[tuple[str, object]]) -> dict:
        record = dict(found)
        if len(record) < len(found):
            names = [name for name, _ in found]
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            parts = {part for column in columns or () for part in {column, *column.split(".")}}
            if columns is None or twice in parts:
                raise DataError(f"{where}: {twice!r} is named twice: rename one")
        return record

    return pairs


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turn the errors of reading a file into a DataError that names it, and the line if one is known."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(missing_file(path)) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a complete gzip file: {str(error).rstrip('.')}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}, line {_line_not_utf8(path)}: not UTF-8; {_GBK}") from None
    except Exception as error:  # of many types, from pandas, pyarrow and the system
        if too_long := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error)):
            expected, line, found = too_long.groups()
            raise DataError(
                f"{path}, line {line}: {found} fields, but line 1 has {expected}; quote texts that have a separator"
            ) from None
        raise DataError(f"{path} cannot be read: {sentence_of(error).rstrip('.')}") from None


def _line_not_utf8(path: Path) -> int:
    with gzip.open(path) if is_gzip(path) else open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 0
