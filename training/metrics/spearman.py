"""Spearman's rank correlation, as SciPy computes it, for `evaluate`: what GLUE has for STS-B."""

import datasets
import evaluate
import numpy as np
from scipy.stats import spearmanr

from modeling_roformer.training.metrics._checks import numbers

_DESCRIPTION = "How far two lists of numbers have the same order."
_INPUTS = """
Args:
    predictions: numbers.
    references: numbers, as many.
Returns:
    spearman: from -1 to 1; 0 where all predictions are equal.

Raises a ValueError where there are none, one is not finite, or all references are equal.
"""


class Spearman(evaluate.Metric):
    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features(predictions=datasets.Value("float64"), references=datasets.Value("float64")),
        )

    def _compute(self, predictions, references):
        predictions, references = numbers(predictions, references)
        if np.ptp(references) == 0:
            raise ValueError(f"all references are {references[0]:g}, so they have no order that could be found again")
        if np.ptp(predictions) == 0:
            return {"spearman": 0.0}
        return {"spearman": float(spearmanr(predictions, references).statistic)}
