"""Texts of values: a value is read as it is written, or refused."""

from typing import TypeGuard

from .errors import DataError


def has_text(text: str | None) -> TypeGuard[str]:
    """Return whether a text is neither None nor blank."""
    return bool(text) and not text.isspace()


def writable(text: str) -> str:
    """Replace lone surrogates, which JSON may have and Arrow may not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def text_of(value: object, batch, row: int, column: str) -> str | None:
    """Return the text of a value: a string as it is, a number or a boolean as Python's `str` prints it, bytes in UTF-8
    decoded. None and NaN are missing: None.

    Args:
        batch, row, column: where the value is: `batch.where` names it in errors.

    Raises:
        DataError: the value is a list, an object, a date, or anything else.
    """
    if isinstance(value, str):
        return writable(value)
    if value is None or value != value:
        return None
    if isinstance(value, (bool, int, float)):
        return str(value)
    where = batch.where(row, column)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{where} has bytes that are not UTF-8: store texts as strings") from None
    if isinstance(value, (list, tuple)):
        raise DataError(f"{where} is a list; expected one text: write a row for each value of the list")
    if isinstance(value, dict):
        fields = ", ".join(f"{column}.{name}" for name in value) or "none"
        raise DataError(f"{where} is an object; expected one text: name a field of it ({fields})")
    raise DataError(f"{where} is of type {type(value).__name__}; expected one text: store it as a string")


def texts_of(value: object, batch, row: int, column: str) -> list[str | None]:
    """Return the texts of a list of values, or of one value. Raises a DataError as `text_of` does."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [text_of(one, batch, row, column) for one in values]
