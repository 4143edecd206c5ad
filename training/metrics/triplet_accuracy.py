"""Accuracy over triplets: is text A closer to B or to C? (section 4.5.3 of the RoFormer paper)"""

import numpy as np

from modeling_roformer.training.metrics import _base


class TripletAccuracy(_base.NumericMetric):
    DESCRIPTION = """
The share of triplets for which the closer text was predicted. A tie, where B and C have the same score, counts as half
a right answer: the expected value of a guess.
"""
    INPUTS = """
Args:
    predictions: 0 for B, 1 for C, -1 for a tie.
    references: 0 where B is closer to A, 1 where C is.

Returns:
    accuracy: the share of right answers, ties counting half.
    right: the number of right predictions.
    ties: the number of ties.

Example:
    >>> metric.compute(predictions=[0, 1, -1, 1], references=[0, 1, 1, 0])
    {'accuracy': 0.625, 'right': 2, 'ties': 1}
"""
    CITATION = """
@article{su2021roformer,
  title   = {RoFormer: Enhanced Transformer with Rotary Position Embedding},
  author  = {Su, Jianlin and Lu, Yu and Pan, Shengfeng and Murtadha, Ahmed and Wen, Bo and Liu, Yunfeng},
  journal = {arXiv preprint arXiv:2104.09864},
  year    = {2021}
}
"""

    def _compute(self, predictions, references):
        predictions, references = _base.classes(predictions, references)
        if not np.isin(references, (0, 1)).all():
            raise ValueError("references must be 0 (B is closer to A) or 1 (C is closer to A)")
        if not np.isin(predictions, (0, 1, -1)).all():
            raise ValueError("predictions must be 0 (B), 1 (C) or -1 (tie)")
        right, ties = int((predictions == references).sum()), int((predictions == -1).sum())
        return {"accuracy": (right + ties / 2) / len(references), "right": right, "ties": ties}
