"""F1 of the class with number 1, as scikit-learn computes it, for `evaluate`: what GLUE has for MRPC and QQP."""

import datasets
import evaluate
from sklearn.metrics import f1_score

from modeling_roformer.training.metrics._checks import classes

_DESCRIPTION = "The harmonic mean of precision and recall of class 1, beside 0."
_INPUTS = """
Args:
    predictions: class ids, 0 or 1.
    references: the right ones.
Returns:
    f1: from 0 to 1; 0 where class 1 is never named rightly.

Raises a ValueError where there are none, or one is neither 0 nor 1.
"""


class BinaryF1(evaluate.Metric):
    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            # Not int64, to which evaluate would cut 0.5, and for which NaN is an error of another library.
            features=datasets.Features(predictions=datasets.Value("float64"), references=datasets.Value("float64")),
        )

    def _compute(self, predictions, references):
        predictions, references = classes(predictions, references, (0, 1))
        return {"f1": float(f1_score(references, predictions, zero_division=0.0))}
