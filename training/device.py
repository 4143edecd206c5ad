"""What this machine computes on, and by how many processes."""

import torch
from accelerate import PartialState

ON_CPU = not torch.accelerator.is_available()


def processes() -> PartialState:
    """The processes of this run, those of torchrun or accelerate, on a CPU too."""
    return PartialState(cpu=ON_CPU)
