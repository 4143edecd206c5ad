"""Runs that differ in one thing, compared: how far each came, and how soon it was where another ended."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..errors import TrainingError
from .curves import Points, points, read_logs

SMOOTHED = 0.05  # share of a stage's entries over which training losses are averaged


@dataclass(frozen=True)
class RunCurves:
    """What a run of `pretrain` has logged, against its steps, which are counted through all stages.

    training: losses, smoothed; held_out: losses on held-out documents, empty where there were none.
    compared: of these two what runs are compared by, in the last stage: losses of stages of other lengths and other masks
        are not of one kind.
    accuracy: the last one, of the words of `compared`.
    """

    training: Points
    held_out: Points
    compared: Points
    accuracy: float

    @property
    def loss(self) -> float:
        """The last one."""
        return self.compared[-1][1]


def run_curves(output: str | Path, held_out: bool) -> RunCurves:
    """Those of a run that is done.

    Args:
        output: its folder.
        held_out: whether it is compared by held-out documents; raises a TrainingError where it has measured none.
    """
    entries, ends = read_logs(output)
    stages = [[entry for entry in entries if first < entry["step"] <= last] for first, last in pairwise([0, *ends])]
    training = [smooth(points(stage, "loss")) for stage in stages]
    evaluated = points(entries, "eval_loss")
    if held_out and not evaluated:
        raise TrainingError(
            f"{output} was trained without held-out documents: leave --eval out, or name another folder"
        )
    if held_out:
        compared, accuracy = points(stages[-1], "eval_loss"), points(stages[-1], "eval_accuracy")
    else:
        compared, accuracy = training[-1], smooth(points(stages[-1], "accuracy"))
    return RunCurves([point for stage in training for point in stage], evaluated, compared, accuracy[-1][1])


def smooth(curve: Points, share: float = SMOOTHED) -> Points:
    """Each value is the mean of the last ones up to it, as many as a `share` of the whole curve; of fewer at the start."""
    window = max(1, round(share * len(curve)))
    parts = [curve[max(0, end - window) : end] for end in range(1, len(curve) + 1)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]


def steps_to(curve: Points, loss: float) -> float | None:
    """After how many steps a curve is at `loss` or below for the first time; None where it never is.

    Between two points it is taken for a straight line. Where the first is already below, it is that one's step: too many
    rather than too few.

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


def times_as_fast(curve: Points, other: Points) -> float | None:
    """How many times fewer steps than the other a run takes to the other's final loss; None where it never gets there.

    >>> times_as_fast([(50, 3.0), (100, 2.0)], [(50, 4.0), (100, 3.0)])
    2.0
    """
    steps = steps_to(curve, other[-1][1])
    return None if steps is None else other[-1][0] / steps
