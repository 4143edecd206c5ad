"""Texts that a training reads as one string."""

from pathlib import Path

from ...tokenization.vocabulary_maker.corpus import is_json_lines
from ..errors import TrainingError


def read_text(file: Path) -> str:
    """Return the text of a file in UTF-8, without a byte order mark. Raise a TrainingError if it has another encoding,
    or JSON Lines."""
    if is_json_lines(file):
        raise TrainingError(f"{file} is JSON Lines; expected text: write the texts alone into a file")
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise TrainingError(f"{file} is not UTF-8 text: convert it, or use another file") from None
