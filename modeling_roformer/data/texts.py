"""Texts of a corpus with their ids, in a stream."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .batches import Batch, DocumentBatch, TextBatch
from .reader import as_document, check_sample_by, data_set_batches, read_batches
from .sources import Sources, checked_id, is_pipe
from .values import has_text, text_of

OPTIONS = ("--field", "--id-field")  # options that name the columns, for errors

Text = tuple[str, str | None]  # the id and the text; None for a row without a text


def batch_texts(batch: Batch, column: str) -> Iterator[tuple[int, str | None]]:
    """Yield the number and the text of each row of a batch, None for a row without a text. A line of text is a text,
    whatever the column."""
    if isinstance(batch, TextBatch):
        for number, line in batch.lines():
            yield number, line if has_text(line) else None
        return
    for number, [value] in batch.rows([column], OPTIONS):
        text = text_of(value, batch, number, column)
        yield number, text if has_text(text) else None


def read_texts(
    sources: Sequence[str | Path], field: str = "text", id_field: str | None = None, sample_by: str = "line"
) -> Iterator[tuple[str, str]]:
    """Yield the ids and the texts of a corpus, without blank ones. See `Texts` for the arguments and errors.

    >>> [text for _, text in read_texts(["laws.jsonl.gz"])]
    """
    return (
        (id_, text) for id_, text in Texts(tuple(map(str, sources)), field, id_field, sample_by) if text is not None
    )


@dataclass
class Texts:
    """Stream of the ids and texts of files and data sets. `consumed` is the number of bytes that were read so far.

    Args:
        sources: files and folders, as `find_files` finds them, and data sets on the Hub, `NAME` or `NAME:CONFIG`, whose
            split "train" is read.
        field: column of the text, except in text files. Rows where it is null or blank have None as text.
        id_field: column of the text's id, a string or an integer. By default, and in text files, an id is the name of
            the file or data set and the number of the line or row, as in `laws.txt:12`; see `source_names`.
        sample_by: what is a text in a text file: "line", or "document" for the whole file, whose id is its name alone.
        batch_bytes: bytes of lines in memory at once; default: `CHUNK`.

    Raises:
        DataError: a source cannot be read. `checked_size` raises those that show without reading everything: a source
            is missing, is of another format, or lacks a column.
    """

    sources: tuple[str, ...]
    field: str = "text"
    id_field: str | None = None
    sample_by: str = "line"
    batch_bytes: int | None = None
    consumed: float = dataclasses.field(default=0.0, init=False)

    def __post_init__(self):
        check_sample_by(self.sample_by)

    @property
    def pipes(self) -> list[Path]:
        """Sources that can be read only once."""
        return self._sources.pipes

    def checked_size(self) -> float:
        """Read the first rows of each source but a pipe, which checks them, and return the size of all in bytes."""
        for place, name in self._sources.opened:
            if not is_pipe(place):
                for batch in self._batches(place):
                    next(self._rows(batch, name), None)
                    break
        return self._sources.size()

    def __iter__(self) -> Iterator[Text]:
        for place, name in self._sources.opened:
            batches = self._batches(place)
            for batch in as_document(batches) if self.sample_by == "document" else batches:
                yield from self._rows(batch, name)
                self.consumed += batch.consumed

    @cached_property
    def _sources(self) -> Sources:
        return Sources(self.sources)

    def _batches(self, place) -> Iterator[Batch]:
        if isinstance(place, Path):
            return read_batches(place, self._columns, self.batch_bytes)
        return data_set_batches(place, self._columns)

    @property
    def _columns(self) -> list[str]:
        return list(dict.fromkeys([self.field, self.id_field or self.field]))

    def _rows(self, batch: Batch, name: str) -> Iterator[Text]:
        if self.id_field is None:
            is_document = isinstance(batch, DocumentBatch)
            for number, text in batch_texts(batch, self.field):
                yield name if is_document else f"{name}:{number}", text
            return
        for number, [value, id_] in batch.rows([self.field, self.id_field], OPTIONS):
            text = text_of(value, batch, number, self.field)
            if has_text(text):
                yield checked_id(id_, batch.where(number, self.id_field)), text
            else:
                yield f"{name}:{number}", None
