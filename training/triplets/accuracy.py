"""Accuracy over triplets (section 4.5.3 of the RoFormer paper), a metric of `evaluate`."""

import datasets
import evaluate
import numpy as np
from transformers import EvalPrediction

from .decisions import triplet_decisions, triplet_results


class TripletAccuracy(evaluate.Metric):
    """Share of triplets whose closer text was predicted. A tie counts half, as much as a guess.

    Predictions are 0 for B, 1 for C and -1 for a tie, references 0 or 1. Others raise a ValueError.

    >>> TripletAccuracy().compute(predictions=[0, 1, -1, 1], references=[0, 1, 1, 0])
    {'accuracy': 0.625}
    """

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")  # int64 would truncate 0.5 to 0
        features = datasets.Features(predictions=number, references=number)
        return evaluate.MetricInfo(description=str(self.__doc__), citation="", features=features)

    def _compute(self, predictions, references) -> dict[str, float]:
        for name, values, allowed in ("predictions", predictions, (0, 1, -1)), ("references", references, (0, 1)):
            if not np.isin(values, allowed).all():
                raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}")
        return {"accuracy": float(np.mean(triplet_results(predictions, references)))}


def triplet_accuracy(predicted: EvalPrediction) -> dict[str, float]:
    """Return the accuracy of logits, for `compute_metrics` of Trainer."""
    decisions = triplet_decisions(predicted.predictions)
    return TripletAccuracy().compute(predictions=decisions, references=predicted.label_ids)
