"""Curves of runs of `pretrain`, and their comparison over several seeds."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from modeling_roformer.training import TrainingError
from modeling_roformer.training.comparing.curves import Points, points, read_logs


@dataclass(frozen=True)
class RunCurves:
    """Curves of a run of `pretrain`. Steps are counted over all stages."""

    training: Points  # smoothed losses
    held_out: Points  # losses on held-out documents
    compared: Points  # those of the last stage: losses of stages with other lengths and masks are not comparable
    accuracy: float  # the last one on held-out documents

    @property
    def loss(self) -> float:
        """The last loss of `compared`."""
        return self.compared[-1][1]


def run_curves(output: str | Path) -> RunCurves:
    """Return the curves of a finished run from its folder.

    Raises a TrainingError if the run had no held-out documents.
    """
    entries, ends = read_logs(output)
    if not ends:
        raise TrainingError(f"{output} has no log.json of a finished stage: restore it, or train in another folder")
    stages = [[entry for entry in entries if first < entry["step"] <= last] for first, last in pairwise([0, *ends])]
    compared, accuracies = (points(stages[-1], name) for name in ("eval_loss", "eval_accuracy"))
    if not compared:
        raise TrainingError(f"{output} was trained without held-out documents: use another folder")
    training = [point for stage in stages for point in smooth(points(stage, "loss"))]
    return RunCurves(training, points(entries, "eval_loss"), compared, accuracies[-1][1])


def smooth(curve: Points, share: float = 0.05) -> Points:
    """Return the moving average of a curve. The window ends at each point and has a `share` of the points, fewer at the
    start."""
    window = max(1, round(share * len(curve)))
    parts = [curve[max(0, end - window) : end] for end in range(1, len(curve) + 1)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]


def steps_to(curve: Points, loss: float) -> float | None:
    """Return the first step where a curve is at most `loss`, or None if it never is.

    The curve is linear between two points. If the first point is already below, return its step, an upper bound.

    >>> steps_to([(10, 4.0), (20, 3.0), (30, 2.0)], 2.5)
    25.0
    """
    before: tuple[float, float] | None = None
    for step, value in curve:
        if value <= loss:
            if before is None:
                return float(step)
            return before[0] + (step - before[0]) * (before[1] - loss) / (before[1] - value)
        before = step, value
    return None


def mean_curve(curves: Iterable[Points]) -> Points:
    """Return the mean of several curves, and the band from their lowest to their highest value, where all have a point.

    >>> mean_curve([[(10, 4.0), (20, 2.0)], [(10, 6.0)]])
    [(10, 5.0, 4.0, 6.0)]
    """
    first, *others = (dict(curve) for curve in curves)
    common = [x for x in first if all(x in other for other in others)]
    values = {x: [first[x], *(other[x] for other in others)] for x in common}
    return [(x, sum(y) / len(y), min(y), max(y)) for x, y in values.items()]
