"""The texts of a corpus with their ids, in shards: whatever their number, one shard is in memory."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path

from ...output.sentence import sentence_of
from ...tokenization.vocabulary_maker.corpus import corpus_files, read_chunks
from ..errors import ServingError
from .extra import extra

with extra("embed"):
    import pyarrow
    import pyarrow.parquet

PARQUET = ".parquet"
_ROWS = 1024  # of a table that are in memory at once
_PIECE = 1 << 18  # bytes of a file of lines that are
_BUFFER = 1 << 20  # bytes of a Parquet column that are
_CHARACTERS = 1 << 24  # after which a shard of long texts ends

Row = tuple[str, str]  # id and text


@dataclass(frozen=True)
class Shard:
    """Texts that follow each other in the input, and whose vectors share a file.

    number: of the shard, from 0; read: bytes of the input that were read for it.
    """

    number: int
    ids: list[str]
    texts: list[str]
    read: float = field(default=0, compare=False)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def name(self) -> str:
        """The file, by which shards lie in the order of the input."""
        return f"{self.number:06d}{PARQUET}"

    @cached_property
    def digest(self) -> str:
        """Differs where an id or a text does."""
        found = hashlib.blake2b(digest_size=16)
        for row in zip(self.ids, self.texts, strict=True):
            for part in row:
                data = part.encode()
                found.update(len(data).to_bytes(8, "little") + data)
        return found.hexdigest()


@dataclass(frozen=True)
class Texts:
    """Where texts are read.

    sources: text files (a text a line), JSON Lines, either as .gz, Parquet files, folders of these, and names of data
        sets that `datasets.load_dataset` reads, `NAME` or `NAME:CONFIG`, of which the split "train" is read.
    field: where JSON Lines, Parquet and data sets keep the text.
    id_field: where they keep its id, a string or a whole number. Without it, and in text files, the id of a text is the
        file's or data set's name and the number of its line or row, `laws.txt:12`.

    Raises a ServingError, TrainingError or CorpusError, each one sentence, where a source cannot be read; `check` finds
    what can be found without reading everything.
    """

    sources: tuple[str, ...]
    field: str = "text"
    id_field: str | None = None

    def check(self) -> float:
        """The size of the input in bytes, once each source is known to be there and to have the fields."""
        return sum(source.size for source in self._open())

    def shards(self, most: int) -> Iterator[Shard]:
        """All texts in their order, without blank ones, `most` in a shard; one that gets very long ends before."""
        number, ids, texts, characters, read = 0, [], [], 0, 0.0
        for source in self._open():
            for rows, consumed in source.pieces():
                read += consumed
                for id_, text in rows:
                    ids.append(_writable(id_))
                    texts.append(_writable(text))
                    characters += len(text)
                    if len(ids) == most or characters >= _CHARACTERS:
                        yield Shard(number, ids, texts, read)
                        number, ids, texts, characters, read = number + 1, [], [], 0, 0.0
        if ids:
            yield Shard(number, ids, texts, read)

    def _open(self) -> list["_Lines | _Table"]:
        found: list[_Lines | _Table] = []
        for are_data_sets, group in groupby(self.sources, _is_data_set):
            if are_data_sets:
                found += map(self._data_set, group)
            else:
                found += map(self._file, corpus_files(group, (PARQUET,)))
        return found

    def _file(self, path: Path) -> "_Lines | _Table":
        return self._parquet(path) if path.suffix == PARQUET else _Lines(path, self.field, self.id_field)

    def _parquet(self, path: Path) -> "_Table":
        try:
            # Columns are read through a buffer, not whole.
            file = pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER)
        except pyarrow.ArrowInvalid as error:
            raise ServingError(f"{path} is not a Parquet file, or damaged: {sentence_of(error).rstrip('.')}") from None
        columns = self._columns(str(path), file.schema_arrow)
        return _Table(
            str(path), columns, path.stat().st_size, file.metadata.num_rows,
            lambda: file.iter_batches(_ROWS, columns=list(dict.fromkeys(columns))),
        )  # fmt: skip

    def _data_set(self, name: str) -> "_Table":
        from ...training.documents import load_data_set

        found = load_data_set(name)
        columns = self._columns(f"the data set {name}", found.features.arrow_schema)
        rows = found.select_columns(list(dict.fromkeys(columns))).with_format("arrow")
        return _Table(name, columns, found.data.nbytes, len(found), lambda: rows.iter(_ROWS))

    def _columns(self, where: str, schema: pyarrow.Schema) -> list[str]:
        columns = [self.field] if self.id_field is None else [self.field, self.id_field]
        for column, option in zip(columns, ("--field", "--id-field"), strict=False):
            if column not in schema.names:
                raise ServingError(
                    f"{where} has no column {column!r}, but {', '.join(schema.names)} ({option} names the one that is meant)"
                )
        kind = schema.field(self.field).type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if kind not in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
            raise ServingError(f"{where}: the column {self.field!r} holds no text, but {kind}")
        return columns


@dataclass(frozen=True)
class _Lines:
    """A file of lines."""

    path: Path
    field: str
    id_field: str | None

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def pieces(self) -> Iterator[tuple[Iterator[Row], float]]:
        for chunk in read_chunks(self.path, _PIECE):
            yield self._rows(chunk.texts(self.field)), chunk.consumed

    def _rows(self, records: Iterator[tuple[int, str, dict]]) -> Iterator[Row]:
        for number, text, fields in records:
            if self.id_field is None:
                yield f"{self.path}:{number}", text
            elif self.id_field in fields:
                yield _id(fields[self.id_field], self.id_field, f"{self.path}, line {number}"), text
            else:
                raise ServingError(
                    f"{self.path}, line {number}: no field {self.id_field!r} (--id-field names the one that holds the id; "
                    "without it, ids are file and line)"
                )


@dataclass(frozen=True)
class _Table:
    """A Parquet file or a data set; `columns` are those of the text and, where there is one, of the id."""

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
        except (pyarrow.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ServingError(f"{self.name} is damaged behind row {at:,}: {sentence_of(error).rstrip('.')}") from None

    def _rows(self, batch: pyarrow.RecordBatch | pyarrow.Table, at: int) -> Iterator[Row]:
        texts, *ids = (batch[column].to_pylist() for column in self.columns)
        for i, text in enumerate(texts):
            if text and not text.isspace():
                number = at + i + 1
                yield (
                    _id(ids[0][i], self.columns[1], f"{self.name}, row {number}") if ids else f"{self.name}:{number}",
                    text,
                )


def _is_data_set(source: str) -> bool:
    if Path(source).is_file():
        return False
    with extra("embed"):
        from ...training.documents import is_data_set
    return is_data_set(source, (PARQUET,))


def _id(value: object, name: str, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ServingError(f"{where}: the field {name!r} is {value!r}, but an id is a string or a whole number")
    return str(value)


def _writable(text: str) -> str:
    """Arrow holds no lone surrogates, which JSON may."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
