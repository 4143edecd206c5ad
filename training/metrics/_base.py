"""Base class of the metrics, and checks of their inputs."""

from collections.abc import Collection, Sequence

import datasets
import evaluate
import numpy as np


class NumericMetric(evaluate.Metric):
    """Metric of two lists of numbers. A subclass sets what `evaluate` shows of it, and `_compute`."""

    DESCRIPTION = INPUTS = CITATION = ""

    def _info(self):
        # Class ids are float64 too: with int64, evaluate would truncate 0.5 to 0, and NaN would be pyarrow's error.
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description=self.DESCRIPTION,
            citation=self.CITATION,
            inputs_description=self.INPUTS,
            features=datasets.Features(predictions=number, references=number),
        )


def numbers(predictions: Sequence, references: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Return both as float64, of shape (n,). Raise a ValueError if a list is empty or a number is not finite."""
    arrays = []
    for name, values in ("predictions", predictions), ("references", references):
        array = np.asarray(values, dtype=np.float64)
        if not array.size:
            raise ValueError(f"{name} is empty")
        if not np.isfinite(array).all():
            place = int(np.argmin(np.isfinite(array)))
            raise ValueError(f"{name}[{place}] is {array[place]}; expected a finite number")
        arrays.append(array)
    return tuple(arrays)


def classes(
    predictions: Sequence, references: Sequence, allowed: Collection[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return both as int64, of shape (n,). Raise a ValueError if a list is empty or a number is not an allowed class
    id.

    `allowed` has the valid ids; None allows any integer.
    """
    arrays = numbers(predictions, references)
    for name, array in zip(("predictions", "references"), arrays, strict=True):
        wrong = array != np.trunc(array) if allowed is None else ~np.isin(array, list(allowed))
        if wrong.any():
            place = int(np.argmax(wrong))
            expected = "an integer" if allowed is None else " or ".join(map(str, allowed))
            raise ValueError(f"{name}[{place}] is {array[place]:g}; expected {expected}")
    return tuple(array.astype(np.int64) for array in arrays)
