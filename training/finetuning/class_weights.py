"""Weights of classes: errors in rare classes count more."""

from collections.abc import Sequence

import torch
from torch.nn import functional as F


def balanced_weights(labels: Sequence[int], classes: int) -> torch.Tensor:
    """Return a weight for each class, as scikit-learn's "balanced": n / (classes * texts of the class), for n texts.

    The mean weight of the n texts is 1. A class without a text, as a random split may leave it, counts as one with one.

    >>> balanced_weights([0, 0, 0, 1], 2)
    tensor([0.6667, 2.0000])
    """
    return len(labels) / (classes * torch.bincount(torch.tensor(labels), minlength=classes).clamp(min=1))


class WeightedLoss:
    """Mean over the texts of their cross-entropy times the weight of their class, for `compute_loss_func` of Trainer.

    The sum is divided by the number of texts, not by the sum of their weights as in `torch.nn.CrossEntropyLoss`:
    otherwise the loss would depend on how the texts of a step lie in its batches.

    >>> Trainer(model, arguments, compute_loss_func=WeightedLoss(balanced_weights(labels, 2)))
    """

    def __init__(self, weights: torch.Tensor):
        self.weights = weights

    def __call__(self, outputs, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None):
        """Return the loss of a batch, or its share of the mean over the `num_items_in_batch` texts of a step."""
        logits = outputs["logits"].float()
        total = F.cross_entropy(logits, labels.to(logits.device), self.weights.to(logits.device), reduction="sum")
        if num_items_in_batch is None:
            return total / len(labels)
        # With nn.DataParallel, Trainer passes each GPU's share of the number.
        return total / torch.as_tensor(num_items_in_batch, device=total.device).sum()
