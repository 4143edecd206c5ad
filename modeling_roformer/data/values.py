"""Texts of values: a value is read as it is written, or refused."""

import math
from contextlib import suppress
from typing import TypeGuard

from .batches import JsonBatch
from .errors import DataError


def has_text(text: str | None) -> TypeGuard[str]:
    """Return whether a text is neither None nor blank."""
    return bool(text) and not text.isspace()


def has_lone_surrogate(text: str) -> bool:
    """Return whether a text has half of a character, which JSON may have and UTF-8 may not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def text_of(value: object, batch, row: int, column: str) -> str | None:
    """Return the text of a value: a string as it is, a number or a boolean as Python's `str` prints it, bytes in UTF-8
    decoded. None and NaN are missing: None.

    Args:
        batch, row, column: where the value is: `batch.where` names it in errors.

    Raises:
        DataError: a string has a lone surrogate; the value is a list, an object, a date, or anything else; or it is a
            number of JSON that Python reads as infinite, such as 1e400. Different numbers would be the same text.
    """
    if isinstance(value, str):
        if has_lone_surrogate(value):
            raise DataError(
                f"{batch.where(row, column)} has a lone surrogate, half of a character: write the whole character, or "
                "remove it"
            )
        return value
    if value is None or value != value:
        return None
    if isinstance(value, float) and math.isinf(value) and isinstance(batch, JsonBatch):
        raise DataError(f"{batch.where(row, column)} is infinite, or too large a number: store it as a string")
    if isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode("utf-8")
    where, kind = batch.where(row, column), type(value).__name__
    raise DataError(f"{where} is of type {kind}; expected one text, as a string in UTF-8")


def texts_of(value: object, batch, row: int, column: str) -> list[str | None]:
    """Return the texts of a list of values, or of one value. Raises a DataError as `text_of` does."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [text_of(one, batch, row, column) for one in values]
