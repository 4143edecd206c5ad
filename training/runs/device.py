"""The device and the processes of a run."""

import torch
from accelerate import PartialState

ON_CPU = not torch.accelerator.is_available()


def processes() -> PartialState:
    """Return the processes of this run, started by torchrun or accelerate, on a CPU too."""
    return PartialState(cpu=ON_CPU)


def device_batch_size(batch_size: int, limit: int) -> int:
    """Return the largest divisor of a batch size that is at most `limit`, and at least 1.

    >>> device_batch_size(16, limit=6)
    4
    """
    return next(n for n in range(max(1, min(batch_size, limit)), 0, -1) if batch_size % n == 0)
