"""The paired bootstrap against scipy's of the differences, several results of one case, and what cannot be compared."""

import numpy as np
import pytest
import scipy.stats
from helpers.messages import refused

from modeling_roformer.training.comparing.paired_bootstrap import paired_bootstrap

FIRST, SECOND = np.random.default_rng(0).random((2, 60)) < [[0.8], [0.6]]


def test_the_interval_is_that_of_the_differences():
    difference = paired_bootstrap(FIRST, SECOND)
    reference = scipy.stats.bootstrap([FIRST * 1.0 - SECOND], np.mean, method="percentile", n_resamples=20_000)
    low, high = reference.confidence_interval
    assert difference.mean == pytest.approx(FIRST.mean() - SECOND.mean())
    assert (difference.low, difference.high) == pytest.approx((low, high), abs=0.02)
    assert paired_bootstrap(FIRST, SECOND) == difference
    opposite = paired_bootstrap(SECOND, FIRST)
    assert (opposite.mean, opposite.low, opposite.high) == pytest.approx(
        (-difference.mean, -difference.high, -difference.low), abs=0.02
    )


def test_it_is_paired():
    """Two that are right on the same cases differ by nothing, however much depends on the cases."""
    same = paired_bootstrap(FIRST, FIRST)
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    assert str(paired_bootstrap([1, 1, 1, 0] * 20, [1, 0, 1, 0] * 20)) == "+25.0 (+16.2 to +35.0)"


def test_results_of_one_case_are_drawn_together():
    once = paired_bootstrap(FIRST, SECOND)
    cases = np.tile(np.arange(60), 5)
    five_times = paired_bootstrap(np.tile(FIRST, 5), np.tile(SECOND, 5), cases)
    assert (five_times.low, five_times.high) == (once.low, once.high)
    apart = paired_bootstrap(np.tile(FIRST, 5), np.tile(SECOND, 5))
    assert apart.high - apart.low < 0.6 * (once.high - once.low)
    # The names of the cases may be anything, and in any order.
    shuffled = np.random.default_rng(1).permutation(300)
    named = [f"line {case:02}" for case in cases]
    first, second = np.tile(FIRST, 5)[shuffled], np.tile(SECOND, 5)[shuffled]
    assert paired_bootstrap(first, second, np.array(named)[shuffled]).low == pytest.approx(once.low)


def test_incomparable_results_are_refused():
    with refused(ValueError, "3 and 2", "3 cases"):
        paired_bootstrap([1, 0, 1], [1, 0])
    with refused(ValueError, "3 and 3", "2 cases"):
        paired_bootstrap([1, 0, 1], [1, 0, 1], ["a", "b"])
