"""Rows of files and data sets with all their columns, in a stream."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .batches import Batch, DocumentBatch, flatten
from .errors import DataError
from .reader import as_document, check_sample_by, data_set_batches, read_batches
from .sources import Sources, checked_id
from .values import has_text, text_of


@dataclass(frozen=True)
class Record:
    """A row of a source: its id, its columns as they are stored, and its place in a batch.

    A field of an object is a column, such as `translation.de`.
    """

    id: str
    columns: dict[str, object]
    batch: Batch
    number: int

    @property
    def place(self) -> str:
        """The file and the row, for errors."""
        return self.batch.place(self.number)

    def text(self, column: str) -> str:
        """Return the text of a column; raise DataError if the row has none."""
        if column not in self.columns:
            raise DataError(f"{self.place} has no column {column!r}, only {', '.join(self.columns) or 'none'}")
        text = text_of(self.columns[column], self.batch, self.number, column)
        if not has_text(text):
            raise DataError(f"{self.batch.where(self.number, column)} is empty")
        return text


class Records(Sources):
    """Stream of the rows of files and data sets, also of blank ones. `consumed` is the number of bytes read so far.

    Args:
        sources: see `Sources`.
        id_field: column of the id, a string or an integer. By default, and in text files, an id is the name of the file
            or data set and the number of the line or row, as in `laws.txt:12`; see `source_names`.
        sample_by: what is a row of a text file: "line", or "document" for the whole file, whose id is its name alone.

    Raises:
        DataError: a source cannot be read, or a row has no id.
    """

    def __init__(self, sources: Sequence[str], id_field: str | None = None, sample_by: str = "line"):
        check_sample_by(sample_by)
        super().__init__(sources)
        self.id_field, self.sample_by, self.consumed = id_field, sample_by, 0.0

    def __iter__(self) -> Iterator[Record]:
        self.consumed = 0.0
        for place, name in self.opened:
            is_file = isinstance(place, Path)
            batches = read_batches(place) if is_file else data_set_batches(place, place.column_names, name)
            for batch in as_document(batches) if self.sample_by == "document" else batches:
                for number, columns in batch.records():
                    yield Record(self._id(batch, number, columns, name), flatten(columns), batch, number)
                self.consumed += batch.consumed

    def _id(self, batch: Batch, number: int, columns: dict, name: str) -> str:
        if self.id_field is None:
            return name if isinstance(batch, DocumentBatch) else f"{name}:{number}"
        if self.id_field not in (flat := flatten(columns)):
            raise DataError(
                f"{batch.place(number)} has no column {self.id_field!r}, only {', '.join(flat)}: name the column with "
                "--id-field"
            )
        return checked_id(flat[self.id_field], batch.where(number, self.id_field))
