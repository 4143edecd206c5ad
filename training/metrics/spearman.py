"""Spearman's rank correlation, as SciPy computes it, for `evaluate`: GLUE's metric for STS-B."""

import numpy as np
from scipy.stats import spearmanr

from modeling_roformer.training.metrics import _base


class Spearman(_base.NumericMetric):
    DESCRIPTION = "The correlation between the ranks of two lists of numbers."
    INPUTS = """
Args:
    predictions: numbers.
    references: as many numbers.
Returns:
    spearman: from -1 to 1; 0 if all predictions are equal.

Raises a ValueError if a list is empty, a number is not finite, or all references are equal.
"""

    def _compute(self, predictions, references):
        predictions, references = _base.numbers(predictions, references)
        if np.ptp(references) == 0:
            raise ValueError(f"all references are {references[0]:g}: rank correlation needs different ones")
        if np.ptp(predictions) == 0:
            return {"spearman": 0.0}
        return {"spearman": float(spearmanr(predictions, references).statistic)}
