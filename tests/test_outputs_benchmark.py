"""benchmarks/outputs.py: which tensors of two recordings differ."""

import sys

import pytest
import torch
from helpers.paths import REPOSITORY

sys.path.append(str(REPOSITORY / "benchmarks"))
import outputs

INFINITE, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("same", [INFINITE, -INFINITE, NAN, 0.5])
def test_equal_values_do_not_differ(same):
    assert outputs.compare({"x": torch.tensor([same])}, {"x": torch.tensor([same])}, 0.0) == []


@pytest.mark.parametrize(
    ("before", "now"), [(INFINITE, -INFINITE), (INFINITE, 1.0), (NAN, 1.0), (1.0, NAN), (1.0, 1.1)]
)
def test_each_other_value_differs(before, now):
    assert len(outputs.compare({"x": torch.tensor([before, 0.0])}, {"x": torch.tensor([now, 0.0])}, 0.01)) == 1
