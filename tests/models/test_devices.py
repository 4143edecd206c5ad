"""Every model on devices other than a CPU: no tensor is made on the CPU by mistake.

A CPU computes what the simulated device of helpers/simulated_device.py returns. That device cannot be unregistered, so
its tests, device_cases.py, run in a process of their own.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.paths import REPOSITORY
from helpers.training_steps import CASES, make_step


@pytest.mark.parametrize("case", CASES)
def test_a_model_that_is_made_on_meta(case):
    """`from_pretrained` makes it there: the same weights as on a CPU, without values."""
    on_cpu, _ = make_step(case)
    with torch.device("meta"):
        model = type(on_cpu)(on_cpu.config)
    expected = {name: x.shape for name, x in on_cpu.state_dict().items()}
    assert {name: x.shape for name, x in model.state_dict().items()} == expected
    assert {x.device.type for x in (*model.parameters(), *model.buffers())} == {"meta"}


@pytest.mark.slow
def test_on_a_simulated_device():
    cases = Path(__file__).with_name("device_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(cases)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
