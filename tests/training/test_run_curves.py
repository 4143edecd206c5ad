"""examples/paper/run_curves.py, against curves made by hand."""

import json

import pytest
from helpers.messages import refused
from run_curves import mean_curve, run_curves, smooth, steps_to

from modeling_roformer.training.errors import TrainingError

FAST = [(100, 5.0), (200, 4.0), (300, 3.0), (400, 2.5)]
SLOW = [(100, 6.0), (200, 5.0), (300, 4.5), (400, 4.0)]
BACK_UP = [(100, 3.0), (200, 2.0), (300, 4.0)]


@pytest.mark.parametrize(("curve", "loss", "steps"), [
    (FAST, 4.0, 200),
    (FAST, 3.25, 275),  # three quarters of the way from 4 to 3
    (FAST, 2.5, 400),
    (FAST, 2.4, None),
    (FAST, 5.5, 100),  # the first point is below it
    (BACK_UP, 2.5, 150),  # for the first time
    ([(10, 2.0), (20, 2.0)], 2.0, 10),
])  # fmt: skip
def test_steps_to_a_loss(curve, loss, steps):
    assert steps_to(curve, loss) == (None if steps is None else pytest.approx(steps))


def test_a_mean_of_runs_has_the_band_between_them():
    assert mean_curve([FAST, SLOW, SLOW[1:]]) == [
        (200, pytest.approx(14 / 3), 4.0, 5.0),
        (300, 4.0, 3.0, 4.5),
        (400, 3.5, 2.5, 4.0),
    ]


def test_smoothing_is_a_mean_of_the_last_values():
    curve = [(step, float(step % 2)) for step in range(1, 41)]
    assert smooth(curve, 0.1)[3:] == [(step, 0.5) for step in range(4, 41)]
    assert smooth(curve, 0.1)[:3] == [(1, 1.0), (2, 0.5), (3, pytest.approx(2 / 3))]
    assert smooth(curve, 0.01) == curve


@pytest.fixture
def output(tmp_path):
    """Write a run's folder with two stages of 20 and 40 steps."""
    for stage, steps, start in (1, 20, 9.0), (2, 40, 5.0):
        entries = [{"step": s, "loss": start - s / 100, "accuracy": s / 100} for s in range(1, steps + 1)]
        entries += [{"step": steps, "eval_loss": start, "eval_accuracy": stage / 10}]
        (tmp_path / f"stage-{stage}").mkdir()
        (tmp_path / f"stage-{stage}" / "log.json").write_text(json.dumps(entries))
    return tmp_path


def test_curves_of_a_run_with_two_stages(output):
    curves = run_curves(output)
    assert [step for step, _ in curves.training] == list(range(1, 61))
    assert curves.training[19:21] == [(20, pytest.approx(8.8)), (21, pytest.approx(4.99))]  # no mean over both stages
    assert curves.held_out == [(20, 9.0), (60, 5.0)] and curves.compared == [(60, 5.0)]
    assert (curves.loss, curves.accuracy) == (5.0, 0.2)


def test_a_run_that_has_measured_nothing_held_out(output):
    for log in output.glob("stage-*/log.json"):
        log.write_text(json.dumps([entry for entry in json.loads(log.read_text()) if "loss" in entry]))
    with refused(TrainingError, output, "held-out"):
        run_curves(output)
