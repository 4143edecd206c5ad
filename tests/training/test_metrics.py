"""Metrics, by hand."""

import numpy as np
import pytest
from helpers.messages import refused

from modeling_roformer.training.metrics import metric


def test_classification():
    found = metric("classification").compute(predictions=[0, 0, 1, 2, 2], references=[0, 1, 1, 2, 0])
    # F1 of the classes: 2·1/(2+2), 2·1/(1+2), 2·1/(2+1)
    assert found == {"accuracy": pytest.approx(3 / 5), "macro_f1": pytest.approx((1 / 2 + 2 / 3 + 2 / 3) / 3)}


NAN, INF = float("nan"), float("inf")
NAMES = ["classification", "f1", "spearman", "triplet_accuracy"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("empty", [[], np.array([])])
def test_nothing_to_measure(name, empty):
    with refused(ValueError, "predictions", "empty"):
        metric(name).compute(predictions=empty, references=empty)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("part", ["predictions", "references"])
def test_numbers_that_are_not_finite(name, value, part):
    given = {"predictions": [1.0, 0.0], "references": [0.0, 1.0]} | {part: [1.0, value]}
    with refused(ValueError, f"{part}[1]", value):
        metric(name).compute(**given)


@pytest.mark.parametrize("name", ["classification", "f1"])
@pytest.mark.parametrize("part", ["predictions", "references"])
def test_a_bad_class_is_refused(name, part):
    given = {"predictions": [1, 0], "references": [0, 1]} | {part: [1, 0.5]}
    with refused(ValueError, f"{part}[1]", 0.5):
        metric(name).compute(**given)


def test_f1_has_two_classes():
    with refused(ValueError, "references[0]", 2, 0, 1):
        metric("f1").compute(predictions=[0, 1], references=[2, 1])


def test_references_without_an_order():
    with refused(ValueError, "references", 4):
        metric("spearman").compute(predictions=[1.0, 2.0], references=[4.0, 4.0])
    one = metric("spearman")
    one.add_batch(predictions=[1.0, 2.0], references=[4.0, 5.0])
    assert one.compute() == {"spearman": pytest.approx(1)}
