"""Batches of rows of one source, and the values in them.

A batch can be pickled, and is parsed only when its rows are asked for: a process reads the file, and others parse.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING

from modeling_roformer.files.reading import unique_fields

from .errors import DataError

if TYPE_CHECKING:
    import pyarrow

TEXT_COLUMN = "text"  # name of the only column of a text file
NOT_UTF8 = "not UTF-8; `iconv -f GB18030 -t UTF-8` converts GBK"

Row = tuple[int, list[object]]  # the number from 1, and a value for each column that was asked for


@dataclass(frozen=True)
class Batch(ABC):
    """Consecutive rows of a source.

    `source` is the file or data set, as errors name it. `first_row` is the number of the first row, from 1: of a line,
    or of a row of a table without its header. `consumed` is the number of bytes of the stored file that were read since
    the batch before.
    """

    source: str
    first_row: int
    consumed: float
    unit = "row"  # what `first_row` counts, as errors name it

    @abstractmethod
    def rows(self, columns: Sequence[str], options: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the rows with the values of columns, as they are stored. A field of an object is a column, such as
        `translation.de`.

        Args:
            columns: names of columns.
            options: the command-line options that name them, for errors.

        Raises:
            DataError: a row has no such column, or cannot be parsed.
        """

    @abstractmethod
    def records(self) -> Iterator[tuple[int, dict]]:
        """Yield the number and all columns of each row, as they are stored.

        Raises:
            DataError: a row cannot be parsed, or is not an object.
        """

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
            raise DataError(f"{self.place(line)}: {NOT_UTF8}") from None

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

    def records(self) -> Iterator[tuple[int, dict]]:
        """Yield each line."""
        return ((number, {TEXT_COLUMN: line}) for number, line in self.lines())


@dataclass(frozen=True)
class DocumentBatch(TextBatch):
    """All lines of a text file, which are one text."""

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the text."""
        yield self.first_row, self.text()


@dataclass(frozen=True)
class JsonBatch(Batch):
    """Objects of a JSON file."""

    @abstractmethod
    def values(self) -> Iterator[tuple[int, object]]:
        """Yield the number and the JSON value of each row."""

    def records(self) -> Iterator[tuple[int, dict]]:
        """Yield the number and the object of each row."""
        for number, record in self.values():
            if not isinstance(record, dict):
                raise DataError(f"{self.place(number)}: not an object with fields")
            yield number, record

    def rows(self, columns: Sequence[str], options: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the fields of each object."""
        for number, record in self.records():
            yield number, _fields(record, columns, options, partial(self.place, number))


@dataclass(frozen=True)
class JsonLineBatch(LineBatch, JsonBatch):
    """Lines of JSON Lines. Blank lines are not rows."""

    def values(self) -> Iterator[tuple[int, object]]:
        """Yield the number and the JSON value of each line."""
        for number, line in self.lines():
            if not line or line.isspace():
                continue
            try:
                value = json.loads(line, object_pairs_hook=unique_fields)
            except (json.JSONDecodeError, RecursionError):
                raise DataError(f"{self.place(number)}: not JSON; JSON Lines have one object per line") from None
            except ValueError as error:  # a field that appears twice, or a number of thousands of digits
                raise DataError(f"{self.place(number)}: {error}") from None
            yield number, value


@dataclass(frozen=True)
class JsonListBatch(JsonBatch):
    """Objects of a JSON file that is one list."""

    objects: list = field(repr=False, default_factory=list)

    def values(self) -> Iterator[tuple[int, object]]:
        """Yield the number and the JSON value of each row."""
        return enumerate(self.objects, self.first_row)


@dataclass(frozen=True)
class TableBatch(Batch):
    """Rows of a table.

    `names` has the names of all columns. `table` has the columns that were read, as arrays of Arrow or lists of
    strings. `features` has the features that `datasets` stored; it is empty if `datasets` stored none.
    """

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
            column_values = self.column(root)
            if root != column:
                column_values = [_field({root: value}, column, option, lambda: self.source) for value in column_values]
            if classes := self._classes(column):
                column_values = [_class_name(classes, value) for value in column_values]
            values.append(column_values)
        for number, row in enumerate(zip(*values, strict=True), self.first_row):
            yield number, [*row]

    def records(self) -> Iterator[tuple[int, dict]]:
        """Yield the columns of each row that were read. A class id is the name of its class."""
        names = [*self.table]
        return ((number, dict(zip(names, values, strict=True))) for number, values in self.rows(names))

    def column(self, name: str) -> list:
        """Return the values of one of the columns that were read, as they are stored."""
        column = self.table[name]
        try:
            return column if isinstance(column, list) else column.to_pylist()
        except UnicodeDecodeError:
            raise DataError(f"{self.source}: {name} has a text that is not UTF-8: store it as binary") from None

    def _classes(self, column: str) -> list[str]:
        """Return the names of the classes of a column of class ids, or of lists of them."""
        feature = self.features.get(column)
        if feature is None:
            feature = self.features
            for part in column.split("."):
                feature = feature.get(part, {}) if isinstance(feature, dict) else {}
        if isinstance(feature, dict) and feature.get("_type") in ("List", "LargeList", "Sequence"):
            feature = feature.get("feature")
        return feature.get("names", []) if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else []


def flatten(record: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of an object. Fields of objects in it have names such as `translation.de`."""
    fields: dict[str, object] = {}
    for name, value in record.items():
        if isinstance(value, dict) and value:
            fields |= {f"{name}.{inner_name}": inner for inner_name, inner in flatten(value).items()}
        else:
            fields[name] = value
    return fields


def _class_name(classes: Sequence[str], class_id: object) -> object:
    if isinstance(class_id, list):
        return [_class_name(classes, one) for one in class_id]
    return classes[class_id] if isinstance(class_id, int) and 0 <= class_id < len(classes) else None


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
