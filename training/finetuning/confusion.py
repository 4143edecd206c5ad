"""Confusion matrices as pictures, also of classes with Chinese names."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from modeling_roformer.files import write_whole

_MAX_CLASSES_WITH_COUNTS = 30
_MAX_NAME = 16  # characters


def draw_confusion(picture: Path, names: Sequence[str], counts: np.ndarray) -> Path:
    """Draw a confusion matrix into a PNG file, written atomically.

    If no installed font has all characters of the names, the picture has the numbers of the classes, from 1 on.

    Args:
        picture: the file.
        names: names of the classes.
        counts: counts[i, j] is the number of texts of class i whose predicted class is j.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    font = font_with("".join(names))
    numbers = [f"{number}" for number in range(1, len(names) + 1)]
    shown = numbers if font is None else [_short(name) for name in names]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size, drawn = min(4 + 0.5 * len(names), 40), io.BytesIO()
    # A name may have dollar signs, which would be read as mathematics.
    with rc_context({"font.family": [font or "sans-serif", "sans-serif"], "text.parse_math": False}):
        figure = Figure(figsize=(size, size), layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set(xlabel="predicted class", ylabel="class")
        turned = {"rotation": 90} if max(map(len, shown)) > 3 else {}
        axes.set_xticks(range(len(names)), shown, **turned)
        axes.set_yticks(range(len(names)), shown)
        if len(names) <= _MAX_CLASSES_WITH_COUNTS:
            for (row, column), count in np.ndenumerate(counts):
                color = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{count:,}", ha="center", va="center", color=color)
        figure.savefig(drawn)
    write_whole(picture, drawn.getvalue())
    return picture


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"


def font_with(text: str) -> str | None:
    """Return the family of an installed font that has every character of a text, or None. Prefer matplotlib's own,
    then upright fonts of normal weight."""
    from matplotlib import font_manager

    own = font_manager.FontProperties().get_name()
    installed = [entry for entry in font_manager.fontManager.ttflist if Path(entry.fname).is_file()]
    usable = [entry for entry in installed if "lastresort" not in entry.name.lower().replace(" ", "")]  # has boxes
    usable.sort(key=lambda entry: (entry.name != own, entry.style != "normal", _distance_from_normal(entry.weight)))
    needed, seen = {ord(character) for character in text if not character.isspace()}, set()
    for entry in usable:
        if entry.name not in seen and needed <= _characters(entry.fname):
            return entry.name
        seen.add(entry.name)
    return None


def _distance_from_normal(weight: Any) -> int:
    return abs(weight - 400) if isinstance(weight, int) else 0 if weight in ("normal", "regular") else 300


def _characters(file: str) -> set[int]:
    from matplotlib.ft2font import FT2Font

    try:
        return {*FT2Font(file).get_charmap()}
    except (OSError, RuntimeError, ValueError):  # a damaged font
        return set()
