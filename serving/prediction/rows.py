"""Rows of the input in parts: consecutive rows whose predictions are stored together."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from modeling_roformer.data import DataError
from modeling_roformer.data.records import Record, Records

from ..errors import ServingError

PART_ROWS = 4096
_MAX_CHARACTERS = 1 << 20  # of a part, so that a stop loses minutes at most
ID, ERROR = "id", "error"  # columns of the output beside those of a head


@dataclass(frozen=True)
class Row:
    """A row of the input: its id, its place in a file, the columns that are kept, and its texts or why it has none."""

    id: str
    place: str
    kept: dict[str, object]
    texts: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Part:
    """Consecutive rows of the input. `read` is the number of bytes of the input since the part before."""

    number: int  # from 0
    rows: list[Row] = field(repr=False)
    read: float = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Name of the file; names sort in the order of the input."""
        return f"{self.number:06d}.jsonl"

    @cached_property
    def digest(self) -> str:
        """Hash of the rows."""
        digest = hashlib.blake2b(digest_size=16)
        for row in self.rows:
            digest.update(json_line({ID: row.id, "texts": row.texts, ERROR: row.error, "kept": row.kept}))
        return digest.hexdigest()


def read_parts(
    records: Records, texts: dict[str, str], columns: Sequence[str], label: str | None = None
) -> Iterator[Part]:
    """Yield all rows in order, at most `PART_ROWS` per part; fewer if they are very long.

    Args:
        texts: names of a head's texts -> the columns that have them.
        columns: names of the columns of its results, which no column of the input may have.
        label: column that the input must have besides.

    Raises:
        ServingError: a column of the input has the name of one of the output.
        DataError: a source cannot be read, or lacks a column.
    """
    taken = {ID, ERROR, *columns}
    rows: list[Row] = []
    number = characters = 0
    before, source = 0.0, None
    for record in records:
        if record.batch.source != source:  # every row of a table has its columns, and a later object may lack some
            source = record.batch.source
            _check_columns(record, texts | ({} if label is None else {"label": label}))
        if len(rows) == PART_ROWS or characters >= _MAX_CHARACTERS:
            yield Part(number, rows, records.consumed - before)
            number, rows, characters, before = number + 1, [], 0, records.consumed
        rows.append(_row(record, texts, taken, records.id_field))
        characters += sum(len(value) for value in rows[-1].kept.values() if isinstance(value, (str, bytes)))
    if rows:
        yield Part(number, rows, records.consumed - before)


def _check_columns(record: Record, texts: dict[str, str]) -> None:
    for name, column in texts.items():
        if column not in record.columns:
            advice = f": name the column with --{name.replace('_', '-')}" if len(name) > 1 else ""
            raise DataError(
                f"{record.place} has no column {column!r}, only {', '.join(record.columns) or 'none'}{advice}"
            )


def _row(record: Record, texts: dict[str, str], taken: set[str], id_field: str | None) -> Row:
    kept = {name: value for name, value in record.columns.items() if name != ID or id_field != ID}
    scores = "scores." if "scores" in taken else "\n"  # CSV has a column for each class's score
    if clash := sorted(name for name in kept if name in taken or name.startswith(scores)):
        advice = "name it with --id-field" if clash[0] == ID else "rename it"
        raise ServingError(f"{record.place} has a column {clash[0]!r}, as the predictions have: {advice}")
    try:
        return Row(record.id, record.place, kept, tuple(record.text(column) for column in texts.values()))
    except DataError as error:
        return Row(record.id, record.place, kept, error=str(error))


def json_line(value: object) -> bytes:
    """Return a line of JSON in UTF-8. Values without a form in JSON, such as dates, are strings, and NaN is null.

    A lone surrogate, which UTF-8 cannot store, is written as JSON's escape.
    """
    line = json.dumps(_finite(value), ensure_ascii=False, default=_string)
    try:
        return f"{line}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(_finite(value), default=_string)}\n".encode()


def _string(value: object) -> str:
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
    return str(value)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and value - value != 0 else value
