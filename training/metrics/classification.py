"""Accuracy and macro F1 of predicted classes, as scikit-learn computes them, for `evaluate`."""

from sklearn.metrics import accuracy_score, f1_score

from modeling_roformer.training.metrics import _base


class Classification(_base.NumericMetric):
    DESCRIPTION = """Accuracy is the share of texts with the right class. Macro F1 is the mean of the F1 scores of all
classes: rare classes weigh as much as frequent ones."""
    INPUTS = """
Args:
    predictions: class ids.
    references: the right class ids.
Returns:
    accuracy, macro_f1: from 0 to 1.

Raises a ValueError if a list is empty or a class id is not an integer.
"""

    def _compute(self, predictions, references):
        predictions, references = _base.classes(predictions, references)
        return {
            "accuracy": float(accuracy_score(references, predictions)),
            "macro_f1": float(f1_score(references, predictions, average="macro")),
        }
