"""Paired bootstrap (Efron and Tibshirani 1993): is a difference larger than the choice of test cases explains?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats

_CASES_PER_BATCH = 1 << 20  # drawn in one step: a bound of the memory


@dataclass(frozen=True)
class Difference:
    """Difference between the means of two lists of results, and its 95 % interval.

    low, high: bounds of 95 % of the differences on resampled test cases. If 0 lies between them, these cases do not
        show which is better.
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        mean, low, high = (f"{100 * value:+.1f}" for value in (self.mean, self.low, self.high))
        return f"{mean} ({low} to {high})"


def paired_bootstrap(
    first: Sequence[float], second: Sequence[float], cases: Sequence | None = None, draws: int = 10_000, seed: int = 0
) -> Difference:
    """Compare two lists of results on the same test cases by resampling the cases with replacement.

    Args:
        first, second: the results, in the same order: 1 for right and 0 for wrong, or other numbers.
        cases: the case of each result, if there are several results per case (several seeds): they are drawn together.
            None if each result has its own case.
        draws: number of draws.
        seed: seed of the draws.

    Raises a ValueError if the numbers of results differ; SciPy raises one for fewer than two cases.

    ```python
    >>> print(paired_bootstrap([1, 1, 1, 0] * 20, [1, 0, 1, 0] * 20))
    +25.0 (+16.2 to +35.0)
    ```
    """
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    cases = np.arange(len(first)) if cases is None else np.unique(np.asarray(cases), return_inverse=True)[1]
    if not len(first) == len(second) == len(cases):
        raise ValueError(f"{len(first)} and {len(second)} results of {len(cases)} cases: expected equal numbers")
    sums, counts = np.bincount(cases, first - second), np.bincount(cases)
    interval = scipy.stats.bootstrap(
        (sums, counts),
        lambda sums, counts, axis: sums.sum(axis) / counts.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=draws,
        batch=max(1, _CASES_PER_BATCH // len(counts)),
        method="percentile",
        random_state=np.random.default_rng(seed),  # newer versions call it rng and accept both names
    ).confidence_interval
    return Difference(float(sums.sum() / counts.sum()), float(interval.low), float(interval.high))
