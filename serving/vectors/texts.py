"""Texts of a corpus with their ids, read one shard at a time."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby, islice
from pathlib import Path

from ...output.console import sentence_of
from ...output.extras import needs_extra
from ...tokenization.vocabulary_maker.corpus import CorpusError, corpus_files, read_chunks
from ...tokenization.vocabulary_maker.csv_table import CSV, TSV, csv_rows, is_csv
from ..errors import ServingError

with needs_extra("embed", ServingError):
    import pyarrow
    import pyarrow.parquet

PARQUET = ".parquet"
TABLES = (CSV, TSV, PARQUET)
SAMPLE_BY = ("line", "document")
_ROWS = 1024  # of a table in memory at once
_PIECE = 1 << 18  # bytes of a file of lines in memory at once
_BUFFER = 1 << 20  # bytes of a Parquet column in memory at once
_NAMED = 20  # most columns that an error lists
_CHARACTERS = 1 << 24  # most characters of a shard

Row = tuple[str, str] | None  # id and text; None for a row without a text
Pieces = Iterator[tuple[Iterable[Row], float]]  # some rows, and the bytes of the input that they took
Source = tuple[float, Callable[[], Pieces]]  # size in bytes, and a function that reads the rows


@dataclass(frozen=True)
class Shard:
    """Consecutive texts of the input, whose vectors share a file."""

    number: int  # from 0
    ids: list[str]
    texts: list[str]
    read: float = field(default=0, compare=False)  # bytes of the input
    left_out: int = field(default=0, compare=False)  # rows without a text; the last shard counts those after it too

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def name(self) -> str:
        """Name of the file; names sort in the order of the input."""
        return f"{self.number:06d}{PARQUET}"

    @cached_property
    def digest(self) -> str:
        """Hash of the ids and texts."""
        found = hashlib.blake2b(digest_size=16)
        for row in zip(self.ids, self.texts, strict=True):
            for part in row:
                data = part.encode()
                found.update(len(data).to_bytes(8, "little") + data)
        return found.hexdigest()


@dataclass(frozen=True)
class Texts:
    """Texts of files and data sets.

    Args:
        sources: text files (see `sample_by`), JSON Lines, CSV and TSV, each also as .gz, Parquet files, folders of
            these, and names of data sets for `datasets.load_dataset`, `NAME` or `NAME:CONFIG`, whose split "train" is
            read.
        field: of the text, except in text files. Rows where it is null or blank are left out.
        id_field: of the text's id, a string or an integer. Without it, and in text files, an id is the name of the file
            or data set and the number of the line or row, as in `laws.txt:12`; see `source_names`.
        sample_by: what is a text in a text file: "line", or "document" for the whole file, whose id is its name alone.

    Raises:
        ServingError, TrainingError, CorpusError: a source cannot be read. `check` raises those that show without
            reading everything.
    """

    sources: tuple[str, ...]
    field: str = "text"
    id_field: str | None = None
    sample_by: str = "line"

    def check(self) -> float:
        """Check that each source exists and has the fields; return the size of the input in bytes."""
        return sum(size for size, _ in self._open())

    def shards(self, most: int) -> Iterator[Shard]:
        """Yield all non-blank texts in order, at most `most` per shard; fewer if they are very long."""
        number, ids, texts, characters, read, left_out = 0, [], [], 0, 0.0, 0
        for _, pieces in self._open():
            for rows, consumed in pieces():
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

    def _open(self) -> list[Source]:
        found: list[Source] = []
        for are_data_sets, group in groupby(self.sources, _is_data_set):
            sources = list(group)
            paths = list(map(Path, sources)) if are_data_sets else corpus_files(sources, TABLES)
            open_one = self._data_set if are_data_sets else self._file
            found += map(open_one, paths, file_names(paths, self.sources))
        return found

    def _file(self, path: Path, name: str) -> Source:
        size = path.stat().st_size
        if path.suffix.lower() == PARQUET:
            try:
                # With a buffer, columns are not read whole.
                file = pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER)
            except (pyarrow.ArrowException, OSError) as error:
                raise ServingError(f"{path} cannot be read as Parquet: {sentence_of(error).rstrip('.')}") from None
            batches = lambda columns: file.iter_batches(_ROWS, columns=columns)  # noqa: E731
            return self._table(str(path), name, file.schema_arrow, size, file.metadata.num_rows, batches)
        if is_csv(path):
            header = next(csv_rows(path), ([], 0))[0]
            places = [header.index(column) for column in self._columns(str(path), header)]
            return size, partial(self._csv_pieces, path, name, places)
        return size, partial(self._line_pieces, path, name)

    def _data_set(self, source: Path, name: str) -> Source:
        with needs_extra("embed", ServingError):
            from ...training.runs.data import load_data
        found = load_data(str(source))
        batches = lambda columns: found.select_columns(columns).with_format("arrow").iter(_ROWS)  # noqa: E731
        where, schema = f"the data set {source}", found.features.arrow_schema
        return self._table(where, name, schema, found.data.nbytes, len(found), batches)

    def _columns(self, where: str, there: Sequence[str]) -> list[str]:
        """Return the column of the text and, if there is one, of the id."""
        columns = [self.field] if self.id_field is None else [self.field, self.id_field]
        for column, option in zip(columns, ("--field", "--id-field"), strict=False):
            if there.count(column) != 1:
                names = ", ".join(name if len(name) < 40 else f"{name[:36]} …" for name in there[:_NAMED]) or "nothing"
                names += f" and {len(there) - _NAMED:,} more" if len(there) > _NAMED else ""
                found = f"no column {column!r}, but {names}" if column not in there else f"several columns {column!r}"
                raise ServingError(f"{where} has {found}: name the column with {option}")
        return columns

    def _row(self, name: str, where: str, number: int, text: str | None, id_: object = None) -> Row:
        """Return the id and text of a row, which errors call `where` and its number."""
        if not _has_text(text):
            return None
        if self.id_field is None:
            return f"{name}:{number}", text
        if isinstance(id_, bool) or not isinstance(id_, (str, int)):
            raise ServingError(
                f"{where} {number}: the field {self.id_field!r} is {id_!r}; expected a string or an integer as id"
            )
        return str(id_), text

    def _line_pieces(self, path: Path, name: str) -> Pieces:
        """Read a text file or JSON Lines."""
        where, whole = f"{path}, line", [] if self.sample_by == "document" else None
        for chunk in read_chunks(path, _PIECE):
            if chunk.is_json:
                whole = None
                yield (self._record(name, where, number, record) for number, record in chunk.records()), chunk.consumed
            elif self.id_field is not None:
                raise ServingError(f"{path} is a text file, without a field {self.id_field!r} (--id-field)")
            elif whole is not None:
                whole.append("\n".join(line for _, line in chunk.lines()))  # with its last line end
                yield [], chunk.consumed
            else:
                yield ((f"{name}:{number}", text) for number, text in chunk.lines() if _has_text(text)), chunk.consumed
        if whole is not None:
            text = "".join(whole)
            yield [(name, text) if _has_text(text) else None], 0

    def _record(self, name: str, where: str, number: int, record: dict) -> Row:
        text = record.get(self.field)
        if self.field not in record:
            raise CorpusError(f"{where} {number}: no field {self.field!r}: name the field of the text with --field")
        if text is not None and not isinstance(text, str):
            raise CorpusError(f"{where} {number}: the field {self.field!r} is not a string")
        return self._row(name, where, number, text, record.get(self.id_field))

    def _csv_pieces(self, path: Path, name: str, places: list[int]) -> Pieces:
        before, where = 0, f"{path}, row"
        for number, (fields, position) in enumerate(islice(csv_rows(path), 1, None), 1):
            text, id_ = fields[places[0]], fields[places[-1]] or None
            yield [self._row(name, where, number, text, id_)], position - before
            before = position

    def _table(self, where: str, name: str, schema: pyarrow.Schema, size: float, rows: int, batches) -> Source:
        """Open a Parquet file or a data set; `batches` reads some columns."""
        columns = self._columns(where, schema.names)
        kind = schema.field(self.field).type
        kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        if kind not in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
            raise ServingError(f"{where}: the column {self.field!r} is of type {kind}; expected text")

        def pieces() -> Pieces:
            at, row_of = 0, partial(self._row, name, f"{where}, row")
            try:
                for batch in batches(list(dict.fromkeys(columns))):
                    values = zip(*(batch[column].to_pylist() for column in columns), strict=True)
                    yield [row_of(number, *row) for number, row in enumerate(values, at + 1)], size * len(batch) / rows
                    at += len(batch)
            except ServingError:
                raise
            except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: not UTF-8
                raise ServingError(f"{where} is damaged after row {at:,}: {sentence_of(error).rstrip('.')}") from None

        return size, pieces


def source_names(sources: Sequence[str]) -> list[str]:
    """Return a name for each source, a file, a folder or a data set, without the folders of the user's machine.

    A relative path is its own name, and an absolute one its last part. That of the current folder is empty.

    >>> source_names(["laws/new.txt", "/home/me/texts/a.txt"])
    ['laws/new.txt', 'a.txt']
    """
    paths = map(Path, sources)
    return [path.name if path.is_absolute() or ".." in path.parts else "/".join(path.parts) for path in paths]


def file_names(files: Sequence[Path], sources: Sequence[str]) -> list[str]:
    """Return a name for each file found in the sources: the name of its source, and its path in it."""
    names, found = dict(zip(map(Path, sources), source_names(sources), strict=True)), {}
    for file in files:
        source = next(place for place in (file, *file.parents) if place in names)
        name = (Path(names[source]) / file.relative_to(source)).as_posix()
        if name in found:
            raise ServingError(
                f"{found[name]} and {file} would both be called {name} in ids: name a folder that has both"
            )
        found[name] = file
    return list(found)


def _is_data_set(source: str) -> bool:
    if Path(source).exists():
        return False
    with needs_extra("embed", ServingError):
        from ...training.runs.data import may_be_on_hub
    return may_be_on_hub(source)


def _has_text(text: str | None) -> bool:
    return bool(text) and not text.isspace()


def _writable(text: str) -> str:
    """Replace lone surrogates, which JSON may have and Arrow may not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
