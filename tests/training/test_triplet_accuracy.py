"""The metric of triplets, as `evaluate` loads it, without a connection."""

import socket

import evaluate
import pytest
from helpers.messages import refused
from helpers.paths import REPOSITORY

from modeling_roformer.training.metrics import metric

SCRIPT = REPOSITORY / "training" / "metrics" / "triplet_accuracy.py"


@pytest.fixture(autouse=True)
def no_connection(monkeypatch):
    def refuse(*_):
        raise AssertionError("something wants a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("load", [lambda: evaluate.load(str(SCRIPT)), lambda: metric("triplet_accuracy")])
def test_right_answers_and_half_of_the_ties(load):
    accuracy = load()
    assert isinstance(accuracy, evaluate.Metric) and "half" in accuracy.description
    computed = accuracy.compute(predictions=[0, 1, -1, 1, 0], references=[0, 1, 1, 0, 0])
    assert computed == {"accuracy": 0.7, "right": 3, "ties": 1}
    assert accuracy.compute(predictions=[-1, -1], references=[0, 1]) == {"accuracy": 0.5, "right": 0, "ties": 2}
    for prediction, reference in (0, 1), (1, 0), (0, 0):  # in parts, as evaluate allows
        accuracy.add(prediction=prediction, reference=reference)
    assert accuracy.compute()["accuracy"] == pytest.approx(1 / 3)


def test_a_bad_answer_is_refused():
    with refused(ValueError, "references", "0 (B", "1 (C"):
        metric("triplet_accuracy").compute(predictions=[0], references=[-1])
    with refused(ValueError, "predictions", 0, 1, -1):
        metric("triplet_accuracy").compute(predictions=[2], references=[0])
    with refused(ValueError, "'accuracies'", "classification", "f1", "spearman", "triplet_accuracy"):
        metric("accuracies")
