"""F1 of class 1, as scikit-learn computes it, for `evaluate`: GLUE's metric for MRPC and QQP."""

from sklearn.metrics import f1_score

from modeling_roformer.training.metrics import _base


class BinaryF1(_base.NumericMetric):
    DESCRIPTION = "The harmonic mean of precision and recall of class 1, where the classes are 0 and 1."
    INPUTS = """
Args:
    predictions: class ids, 0 or 1.
    references: the right class ids.
Returns:
    f1: from 0 to 1; 0 if class 1 is never predicted rightly.

Raises a ValueError if a list is empty or a class id is neither 0 nor 1.
"""

    def _compute(self, predictions, references):
        predictions, references = _base.classes(predictions, references, (0, 1))
        return {"f1": float(f1_score(references, predictions, zero_division=0.0))}
