"""Arguments of a script, checked without importing torch."""

import argparse
import math
from collections.abc import Iterable
from pathlib import Path

from ..errors import TrainingError

SHORTEST = 8  # tokens
# Sizes of https://github.com/google-research/bert: layers and width. A head has 64 dimensions.
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768)}


def require_files(places: Iterable[str | Path | None]) -> None:
    """Raise a TrainingError if one of the places does not exist. None stands for an option that was not given."""
    for place in filter(None, places):
        if not Path(place).exists():
            raise TrainingError(f"{place} does not exist")


def require_place(place: str | Path) -> str:
    """Return a place if it exists or may be a name on the Hub. Raise a TrainingError otherwise."""
    if not Path(place).exists() and (Path(place).is_absolute() or str(place).count("/") != 1 or str(place)[0] == "."):
        raise TrainingError(f"{place} does not exist")
    return str(place)


def positive_rate(word: str) -> float:
    """Return a learning rate from the command line: finite and above 0. A type for `argparse`."""
    if not 0 < (number := float(word)) < math.inf:
        raise argparse.ArgumentTypeError(f"{word} is not a finite number above 0")
    return number


def positive_integer(word: str) -> int:
    """Return a size or a count from the command line: an integer above 0. A type for `argparse`."""
    if (number := int(word)) < 1:
        raise argparse.ArgumentTypeError(f"{word} is not an integer above 0")
    return number


def text_length(word: str) -> int:
    """Return a number of tokens from the command line, of which a text, or each of a pair, has some. A type for
    `argparse`."""
    if (number := int(word)) < SHORTEST:
        raise argparse.ArgumentTypeError(f"{word} is not an integer of at least {SHORTEST}")
    return number


def seed_number(word: str) -> int:
    """Return a seed from the command line: an integer that every generator accepts. A type for `argparse`."""
    if not 0 <= (number := int(word)) < 2**32:
        raise argparse.ArgumentTypeError(f"{word} is not an integer from 0 to 4294967295")
    return number
