"""Accuracy and macro F1 of predicted classes, as scikit-learn computes them, for `evaluate`."""

import datasets
import evaluate
from sklearn.metrics import accuracy_score, f1_score

from modeling_roformer.training.metrics._checks import classes

_DESCRIPTION = """Accuracy is the share of texts whose class is right. Macro F1 is the mean of the F1 scores of all classes,
which weighs rare classes as much as frequent ones."""
_INPUTS = """
Args:
    predictions: class ids.
    references: the right ones.
Returns:
    accuracy, macro_f1: from 0 to 1.

Raises a ValueError where there are none, or one is no whole number.
"""


class Classification(evaluate.Metric):
    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            # Not int64, to which evaluate would cut 0.5, and for which NaN is an error of another library.
            features=datasets.Features(predictions=datasets.Value("float64"), references=datasets.Value("float64")),
        )

    def _compute(self, predictions, references):
        predictions, references = classes(predictions, references)
        return {
            "accuracy": float(accuracy_score(references, predictions)),
            "macro_f1": float(f1_score(references, predictions, average="macro")),
        }
