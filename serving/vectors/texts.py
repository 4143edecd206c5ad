"""Texts of a corpus with their ids, read one shard at a time."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from ...output.console import Hidden, sentence_of
from ...output.extras import needs_extra
from ...tokenization.vocabulary_maker.corpus import corpus_files, has_text, kind_of, read_chunks, writable
from ..errors import ServingError

with needs_extra("embed", ServingError):
    import datasets
    import pyarrow
    import pyarrow.parquet

    from ...training.runs.data import FILES as FILES
    from ...training.runs.data import load_data, may_be_on_hub

PARQUET = ".parquet"
CSV = (".csv", ".tsv")
SAMPLE_BY = ("line", "document")
_ROWS = 1024  # of a table in memory at once
_PIECE = 1 << 18  # bytes of a file of lines in memory at once
_BUFFER = 1 << 20  # bytes of a Parquet column in memory at once
_CHARACTERS = 1 << 24  # most characters of a shard
_NO_BARS = Hidden(
    lambda: not datasets.is_progress_bar_enabled(), datasets.disable_progress_bars, datasets.enable_progress_bars
)

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
        sources: text files, JSON Lines, CSV and TSV, each also as .gz, Parquet files, folders of these, and data sets,
            `NAME` or `NAME:CONFIG`, whose split "train" is read.
        field: of the text, except in text files. Rows where it is null or blank are left out.
        id_field: of the text's id, a string or an integer. By default, and in text files, an id is the name of the file
            or data set and the number of the line or row, as in `laws.txt:12`; see `source_names`.
        sample_by: what is a text in a text file: "line", or "document" for the whole file, whose id is its name alone.

    Raises:
        ServingError, TrainingError, CorpusError: a source cannot be read. `size` raises those that show without reading
            everything: a source is missing or lacks a field.
    """

    sources: tuple[str, ...]
    field: str = "text"
    id_field: str | None = None
    sample_by: str = "line"

    @property
    def size(self) -> float:
        """Size of the input in bytes."""
        return sum(size for size, _ in self._opened)

    def shards(self, most: int) -> Iterator[Shard]:
        """Yield all non-blank texts in order, at most `most` per shard; fewer if they are very long."""
        number, ids, texts, characters, read, left_out = 0, [], [], 0, 0.0, 0
        for _, pieces in self._opened:
            for rows, consumed in pieces():
                read += consumed
                for row in rows:
                    if row is None:
                        left_out += 1
                        continue
                    if len(ids) == most or characters >= _CHARACTERS:
                        yield Shard(number, ids, texts, read, left_out)
                        number, ids, texts, characters, read, left_out = number + 1, [], [], 0, 0.0, 0
                    ids.append(writable(row[0]))
                    texts.append(writable(row[1]))
                    characters += len(row[1])
        if ids:
            yield Shard(number, ids, texts, read, left_out)

    @cached_property
    def _opened(self) -> list[Source]:
        found: list[Source] = []
        files, seen = {}, set()  # by their names in ids; resolved
        for source, short in zip(self.sources, source_names(self.sources), strict=True):
            if may_be_on_hub(source):
                found.append(self._data_set(source, f"the data set {source}", short))
                continue
            for path in corpus_files([source], (*CSV, PARQUET)):
                if path.resolve() in seen:
                    continue
                name = (Path(short) / path.relative_to(source)).as_posix()
                if name in files:
                    raise ServingError(
                        f"{files[name]} and {path} would both be called {name} in ids: name a folder that has both"
                    )
                files[name] = path
                seen.add(path.resolve())
                found.append(self._file(path, name))
        return found

    def _file(self, path: Path, name: str) -> Source:
        if kind_of(path) in CSV:
            return self._data_set(str(path), str(path), name)
        if path.suffix.lower() != PARQUET:
            return path.stat().st_size, partial(self._line_pieces, path, name)
        try:
            file = pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER)  # without a buffer, columns are read whole
        except (pyarrow.ArrowException, OSError) as error:
            raise ServingError(f"{path} cannot be read as Parquet: {sentence_of(error).rstrip('.')}") from None
        batches = partial(file.iter_batches, _ROWS, columns=self._columns)
        return self._table(str(path), name, file.schema_arrow, path.stat().st_size, file.metadata.num_rows, batches)

    def _data_set(self, source: str, where: str, name: str) -> Source:
        with _NO_BARS:  # they would mix with the caller's
            found = load_data(source)
        batches = lambda: found.select_columns(self._columns).with_format("arrow").iter(_ROWS)  # noqa: E731
        return self._table(where, name, found.features.arrow_schema, found.data.nbytes, len(found), batches)

    @property
    def _columns(self) -> list[str]:
        return list(dict.fromkeys([self.field, self.id_field or self.field]))

    def _row(self, name: str, where: str, number: int, text: str | None, id_: object = None) -> Row:
        """Return the id and text of a row, which errors call `where` and its number."""
        if not has_text(text):
            return None
        if self.id_field is None:
            return f"{name}:{number}", text
        if isinstance(id_, bool) or not isinstance(id_, (str, int)) or id_ == "":
            raise ServingError(
                f"{where} {number}: the field {self.id_field!r} is {id_!r}; expected a string or an integer as id"
            )
        return str(id_), text

    def _line_pieces(self, path: Path, name: str) -> Pieces:
        """Read a text file or JSON Lines."""
        where, whole = f"{path}, line", [] if self.sample_by == "document" else None
        for chunk in read_chunks(path, _PIECE):
            if not chunk.is_json and self.id_field is not None:
                raise ServingError(f"{path} is a text file, without a field {self.id_field!r} (--id-field)")
            if not chunk.is_json and whole is not None:
                whole.append(chunk.text())
                yield [], chunk.consumed
                continue
            whole = None
            rows = chunk.rows(self.field)
            yield (self._row(name, where, n, text, of.get(self.id_field)) for n, text, of in rows), chunk.consumed
        if whole is not None:
            text = "".join(whole)
            yield [(name, text) if has_text(text) else None], 0

    def _table(self, where: str, name: str, schema: pyarrow.Schema, size: float, rows: int, batches) -> Source:
        """Open a Parquet file or a data set; `batches` reads the columns."""
        for column, option in zip(self._columns, ("--field", "--id-field"), strict=False):
            if column not in schema.names:
                raise ServingError(
                    f"{where} has no column {column!r}, but {', '.join(schema.names)}: name the column with {option}"
                )
        kind = schema.field(self.field).type
        kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        if kind not in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
            raise ServingError(f"{where}: the column {self.field!r} is of type {kind}; expected text")

        def pieces() -> Pieces:
            at, row_of = 0, partial(self._row, name, f"{where}, row")
            both = self.field, self.id_field or self.field
            try:
                for batch in batches():
                    values = zip(*(batch[column].to_pylist() for column in both), strict=True)
                    yield [row_of(number, *row) for number, row in enumerate(values, at + 1)], size * len(batch) / rows
                    at += len(batch)
            except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
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
