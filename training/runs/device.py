"""The device and the processes of a run."""

import torch
from accelerate import PartialState

ON_CPU = not torch.accelerator.is_available()


def processes() -> PartialState:
    """Return the processes of this run, started by torchrun or accelerate, on a CPU too."""
    return PartialState(cpu=ON_CPU)
