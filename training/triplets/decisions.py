"""Decisions on triplets from scores, and their results."""

import numpy as np

from ..runs.finite_callback import NotFinite


def triplet_decisions(scores: np.ndarray) -> np.ndarray:
    """Return 0 for B, 1 for C or -1 for a tie, from scores for B and C of shape (n, 2), such as the model's logits.

    Raises NotFinite if a score is not finite.

    >>> triplet_decisions(np.array([[0.9, 0.1], [0.2, 0.7], [0.5, 0.5]])).tolist()
    [0, 1, -1]
    """
    if not np.isfinite(scores).all():
        raise NotFinite("the model's scores are not finite: use a lower learning rate")
    b, c = np.asarray(scores).T
    return np.where(b == c, -1, (c > b).astype(int))


def triplet_results(decisions: np.ndarray, labels: np.ndarray) -> list[float]:
    """Return the result of each decision: 1 if it is right, 0 if it is wrong, 0.5 for a tie. Their mean is the
    accuracy."""
    return np.where(np.asarray(decisions) == -1, 0.5, np.asarray(decisions) == np.asarray(labels)).tolist()
