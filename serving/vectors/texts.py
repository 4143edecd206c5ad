"""The texts of a corpus with their ids, in shards: whatever their number, one shard is in memory."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path

from ...output.console import sentence_of
from ...output.extras import needs_extra
from ...tokenization.vocabulary_maker.corpus import Chunk, CorpusError, corpus_files, is_json_lines, read_chunks
from ..errors import ServingError
from .csv_table import CSV, csv_columns, csv_rows
from .source_names import file_names

with needs_extra("embed", ServingError):
    import pyarrow
    import pyarrow.parquet

PARQUET = ".parquet"
_ROWS = 1024  # of a table that are in memory at once
_PIECE = 1 << 18  # bytes of a file of lines that are
_BUFFER = 1 << 20  # bytes of a Parquet column that are
_NAMED = 20  # columns that an error names
_CHARACTERS = 1 << 24  # after which a shard of long texts ends

Row = tuple[str, str] | None  # id and text, or a row without a text


@dataclass(frozen=True)
class Shard:
    """Texts that follow each other in the input, and whose vectors share a file.

    number: of the shard, from 0; read: bytes of the input that were read for it; left_out: rows without a text among its own,
    or behind them where it is the last.
    """

    number: int
    ids: list[str]
    texts: list[str]
    read: float = field(default=0, compare=False)
    left_out: int = field(default=0, compare=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def name(self) -> str:
        """The file, by which shards lie in the order of the input."""
        return shard_name(self.number)

    @cached_property
    def digest(self) -> str:
        """Differs where an id or a text does."""
        return digest_of(self.ids, self.texts)


def shard_name(number: int) -> str:
    """Return the name of a shard's file."""
    return f"{number:06d}{PARQUET}"


def digest_of(ids: Sequence[str], texts: Sequence[str]) -> str:
    """Return what differs where an id or a text does."""
    found = hashlib.blake2b(digest_size=16)
    for row in zip(ids, texts, strict=True):
        for part in row:
            data = part.encode()
            found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()


@dataclass(frozen=True)
class Texts:
    """Where texts are read.

    sources: text files (a text a line), JSON Lines and CSV, each also as .gz, Parquet files, folders of these, and names
        of data sets that `datasets.load_dataset` reads, `NAME` or `NAME:CONFIG`, of which the split "train" is read.
    field: where all but text files keep the text. A row where it is null or blank is left out.
    id_field: where they keep its id, a string or a whole number. Without it, and in text files, the id of a text is the
        file's or data set's name and the number of its line or row, `laws.txt:12`; see `source_names`.
    whole_paths: ids have the sources' paths as given, as those of folders that older versions have begun.

    Raises a ServingError, TrainingError or CorpusError, each one sentence, where a source cannot be read; `check` finds
    what can be found without reading everything.
    """

    sources: tuple[str, ...]
    field: str = "text"
    id_field: str | None = None
    whole_paths: bool = False

    def check(self) -> float:
        """The size of the input in bytes, once each source is known to be there and to have the fields."""
        return sum(source.size for source in self._open())

    def shards(self, most: int) -> Iterator[Shard]:
        """All texts in their order, without blank ones, `most` in a shard; one that gets very long ends before."""
        number, ids, texts, characters, read, left_out = 0, [], [], 0, 0.0, 0
        for source in self._open():
            for rows, consumed in source.pieces():
                read += consumed
                for row in rows:
                    if row is None:
                        left_out += 1
                        continue
                    if len(ids) == most or characters >= _CHARACTERS:
                        yield Shard(number, ids, texts, read, left_out)
                        number, ids, texts, characters, read, left_out = number + 1, [], [], 0, 0.0, 0
                    ids.append(_writable(row[0]))
                    texts.append(_writable(row[1]))
                    characters += len(row[1])
        if ids:
            yield Shard(number, ids, texts, read, left_out)

    def _open(self) -> list["_Lines | _Csv | _Table"]:
        found: list[_Lines | _Csv | _Table] = []
        for are_data_sets, group in groupby(self.sources, _is_data_set):
            sources = list(group)
            if are_data_sets:
                found += [self._data_set(name, self._names([Path(name)])[0]) for name in sources]
            else:
                files = corpus_files(sources, (CSV, PARQUET))
                found += map(self._file, files, self._names(files))
        return found

    def _names(self, paths: Sequence[Path]) -> list[str]:
        return list(map(str, paths)) if self.whole_paths else file_names(paths, self.sources)

    def _file(self, path: Path, name: str) -> "_Lines | _Csv | _Table":
        if path.suffix.lower() == PARQUET:
            return self._parquet(path, name)
        if path.name.removesuffix(".gz").lower().endswith(CSV):
            return _Csv(path, name, self._columns(str(path), csv_columns(path)))
        return _Lines(path, name, self.field, self.id_field)

    def _parquet(self, path: Path, name: str) -> "_Table":
        try:
            # Columns are read through a buffer, not whole.
            file = pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER)
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ServingError(f"{path} is not a Parquet file, or damaged: {sentence_of(error).rstrip('.')}") from None
        columns = self._text_columns(str(path), file.schema_arrow)
        return _Table(
            str(path), name, columns, path.stat().st_size, file.metadata.num_rows,
            lambda: file.iter_batches(_ROWS, columns=list(dict.fromkeys(columns))),
        )  # fmt: skip

    def _data_set(self, source: str, name: str) -> "_Table":
        from ...training.pretraining.documents import load_data_set

        found = load_data_set(source)
        where = f"the data set {source}"
        columns = self._text_columns(where, found.features.arrow_schema)
        rows = found.select_columns(list(dict.fromkeys(columns))).with_format("arrow")
        return _Table(where, name, columns, found.data.nbytes, len(found), lambda: rows.iter(_ROWS))

    def _columns(self, where: str, there: Sequence[str]) -> list[str]:
        """The columns of the text and, where there is one, of the id."""
        columns = [self.field] if self.id_field is None else [self.field, self.id_field]
        for column, option in zip(columns, ("--field", "--id-field"), strict=False):
            if there.count(column) != 1:
                names = ", ".join(name if len(name) < 40 else f"{name[:36]} …" for name in there[:_NAMED]) or "nothing"
                names += f" and {len(there) - _NAMED:,} more" if len(there) > _NAMED else ""
                what = f"no column {column!r}, but {names}" if column not in there else f"several columns {column!r}"
                raise ServingError(f"{where} has {what} ({option} names the one that is meant)")
        return columns

    def _text_columns(self, where: str, schema: pyarrow.Schema) -> list[str]:
        columns = self._columns(where, schema.names)
        kind = schema.field(self.field).type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if kind not in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
            raise ServingError(f"{where}: the column {self.field!r} holds no text, but {kind}")
        return columns


@dataclass(frozen=True)
class _Lines:
    """A file of lines, `name` in ids."""

    path: Path
    name: str
    field: str
    id_field: str | None

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def pieces(self) -> Iterator[tuple[Iterator[Row], float]]:
        read = self._records if is_json_lines(self.path) else self._lines
        for chunk in read_chunks(self.path, _PIECE):
            yield read(chunk), chunk.consumed

    def _lines(self, chunk: Chunk) -> Iterator[Row]:
        if self.id_field is not None:
            raise ServingError(f"{self.path} has lines without fields, so none is {self.id_field!r} (--id-field)")
        return ((f"{self.name}:{number}", text) for number, text in chunk.lines() if _has_text(text))

    def _records(self, chunk: Chunk) -> Iterator[Row]:
        for number, record in chunk.records():
            where = f"{self.path}, line {number}"
            if self.field not in record:
                raise CorpusError(f"{where}: no field {self.field!r} (--field names the one that holds the text)")
            text = record[self.field]
            if text is not None and not isinstance(text, str):
                raise CorpusError(f"{where}: the field {self.field!r} is not a string")
            if not _has_text(text):
                yield None
            elif self.id_field is None:
                yield f"{self.name}:{number}", text
            elif self.id_field in record:
                yield _id(record[self.id_field], self.id_field, where), text
            else:
                raise ServingError(
                    f"{where}: no field {self.id_field!r} (--id-field names the one that holds the id; without it, ids are "
                    "file and line)"
                )


@dataclass(frozen=True)
class _Csv:
    """A CSV file, `name` in ids; `columns` are those of the text and, where there is one, of the id."""

    path: Path
    name: str
    columns: Sequence[str]

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def pieces(self) -> Iterator[tuple[Iterator[Row], float]]:
        before = 0
        for number, (fields, position) in enumerate(csv_rows(self.path, self.columns), 1):
            yield self._row(number, *fields), position - before
            before = position

    def _row(self, number: int, text: str, id_: str | None = None) -> Iterator[Row]:
        if not _has_text(text):
            yield None
        elif id_ is None:
            yield f"{self.name}:{number}", text
        else:
            yield _id(id_ or None, self.columns[1], f"{self.path}, row {number}"), text


@dataclass(frozen=True)
class _Table:
    """A Parquet file or a data set, `where` in errors and `name` in ids; `columns` as of `_Csv`."""

    where: str
    name: str
    columns: Sequence[str]
    size: int
    rows: int
    batches: object

    def pieces(self) -> Iterator[tuple[Iterator[Row], float]]:
        at = 0
        try:
            for batch in self.batches():
                yield self._rows(batch, at), self.size * len(batch) / self.rows
                at += len(batch)
        except (pyarrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ServingError(f"{self.where} is damaged behind row {at:,}: {sentence_of(error).rstrip('.')}") from None

    def _rows(self, batch: pyarrow.RecordBatch | pyarrow.Table, at: int) -> Iterator[Row]:
        texts, *ids = (self._values(batch[column], column, at) for column in self.columns)
        for i, text in enumerate(texts):
            number = at + i + 1
            if not _has_text(text):
                yield None
            elif ids:
                yield _id(ids[0][i], self.columns[1], f"{self.where}, row {number}"), text
            else:
                yield f"{self.name}:{number}", text

    def _values(self, values: pyarrow.Array | pyarrow.ChunkedArray, column: str, at: int) -> list:
        """As Python's objects, of which Arrow does not promise that there are any, or that text is UTF-8."""
        try:
            return values.to_pylist()
        except (ValueError, OverflowError):
            for number, value in enumerate(values, at + 1):
                try:
                    value.as_py()
                except (ValueError, OverflowError) as error:
                    reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else sentence_of(error).rstrip(".")
                    raise ServingError(f"{self.where}, row {number}: the column {column!r}: {reason}") from None
            raise


def _is_data_set(source: str) -> bool:
    if Path(source).is_file():
        return False
    with needs_extra("embed", ServingError):
        from ...training.pretraining.documents import is_data_set
    return is_data_set(source, (CSV, PARQUET))


def _has_text(text: str | None) -> bool:
    return bool(text) and not text.isspace()


def _id(value: object, name: str, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ServingError(f"{where}: the field {name!r} is {value!r}, but an id is a string or a whole number")
    return str(value)


def _writable(text: str) -> str:
    """Arrow holds no lone surrogates, which JSON may."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
