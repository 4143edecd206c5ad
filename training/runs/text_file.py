"""Texts that a training reads as one string."""

from pathlib import Path

from ..errors import TrainingError


def read_text(file: Path) -> str:
    """Return the text of a file in UTF-8, without a byte order mark. Raise a TrainingError if it has another encoding."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise TrainingError(f"{file} is not UTF-8 text: convert it, or use another file") from None
