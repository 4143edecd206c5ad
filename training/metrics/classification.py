"""Accuracy and macro F1 of predicted classes, as scikit-learn computes them, for `evaluate`."""

import datasets
import evaluate
from sklearn.metrics import accuracy_score, f1_score

_DESCRIPTION = """Accuracy is the share of texts whose class is right. Macro F1 is the mean of the F1 scores of all classes,
which weighs rare classes as much as frequent ones."""
_INPUTS = """
Args:
    predictions: class ids.
    references: the right ones.
Returns:
    accuracy, macro_f1: from 0 to 1.
"""


class Classification(evaluate.Metric):
    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features(predictions=datasets.Value("int64"), references=datasets.Value("int64")),
        )

    def _compute(self, predictions, references):
        return {
            "accuracy": float(accuracy_score(references, predictions)),
            "macro_f1": float(f1_score(references, predictions, average="macro")),
        }
