"""What a metric is given, checked: what libraries say of empty lists or NaN names neither."""

from collections.abc import Collection, Sequence

import numpy as np


def numbers(predictions: Sequence, references: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Return both as float64, of shape (n,).

    Raises a ValueError where there are none, or one is not finite.
    """
    arrays = []
    for name, values in ("predictions", predictions), ("references", references):
        array = np.asarray(values, dtype=np.float64)
        if not array.size:
            raise ValueError(f"there are no {name}, so there is nothing to measure")
        if not np.isfinite(array).all():
            place = int(np.argmin(np.isfinite(array)))
            raise ValueError(f"{name}[{place}] is {array[place]}: a metric needs finite numbers")
        arrays.append(array)
    return tuple(arrays)


def classes(
    predictions: Sequence, references: Sequence, allowed: Collection[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return both as int64, of shape (n,).

    Args:
        allowed: the ids that there are; any if None.

    Raises a ValueError where there are none, or one is no class id, as NaN is none.
    """
    arrays = numbers(predictions, references)
    for name, array in zip(("predictions", "references"), arrays, strict=True):
        wrong = array != np.trunc(array) if allowed is None else ~np.isin(array, list(allowed))
        if wrong.any():
            place = int(np.argmax(wrong))
            ids = "a whole number" if allowed is None else " or ".join(map(str, allowed))
            raise ValueError(f"{name}[{place}] is {array[place]:g}, but must be {ids}")
    return tuple(array.astype(np.int64) for array in arrays)
