"""Metrics, by hand."""

import pytest

from modeling_roformer.training.metrics import metric


def test_classification():
    found = metric("classification").compute(predictions=[0, 0, 1, 2, 2], references=[0, 1, 1, 2, 0])
    # F1 of the classes: 2·1/(2+2), 2·1/(1+2), 2·1/(2+1)
    assert found == {"accuracy": pytest.approx(3 / 5), "macro_f1": pytest.approx((1 / 2 + 2 / 3 + 2 / 3) / 3)}
