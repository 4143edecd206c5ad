"""Accuracy over triplets: is text A closer to B or to C? (section 4.5.3 of the RoFormer paper)"""

import datasets
import evaluate
import numpy as np

from modeling_roformer.training.metrics._checks import classes

_DESCRIPTION = """
The share of triplets of which the closer text was named. Who scores B and C equally has named none: such a tie counts as half
a right answer, which is what a coin would get.
"""
_INPUTS = """
Args:
    predictions: 0 for B, 1 for C, -1 for neither (a tie).
    references: 0 where B is closer to A, 1 where C is.

Returns:
    accuracy: the share of right answers, ties counting half.
    right: how many were named rightly.
    ties: how many were left undecided.

Example:
    >>> metric.compute(predictions=[0, 1, -1, 1], references=[0, 1, 1, 0])
    {'accuracy': 0.625, 'right': 2, 'ties': 1}
"""
_CITATION = """
@article{su2021roformer,
  title   = {RoFormer: Enhanced Transformer with Rotary Position Embedding},
  author  = {Su, Jianlin and Lu, Yu and Pan, Shengfeng and Murtadha, Ahmed and Wen, Bo and Liu, Yunfeng},
  journal = {arXiv preprint arXiv:2104.09864},
  year    = {2021}
}
"""


class TripletAccuracy(evaluate.Metric):
    """See `_DESCRIPTION` and `_INPUTS`, which `evaluate` shows."""

    def _info(self):
        # Not int64, to which evaluate would cut 0.5, and for which NaN is an error of another library.
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": number, "references": number}),
        )

    def _compute(self, predictions, references):
        predictions, references = classes(predictions, references)
        if not np.isin(references, (0, 1)).all():
            raise ValueError("references must be 0 (B is closer to A) or 1 (C is)")
        if not np.isin(predictions, (0, 1, -1)).all():
            raise ValueError("predictions must be 0 (B), 1 (C) or -1 (neither)")
        right, ties = int((predictions == references).sum()), int((predictions == -1).sum())
        return {"accuracy": (right + ties / 2) / len(references), "right": right, "ties": ties}
