"""The device and the processes of a run."""

from collections.abc import Callable
from typing import TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from ...output.console import sentence_of
from ..errors import TrainingError

T = TypeVar("T")
ON_CPU = not torch.accelerator.is_available()


def processes() -> PartialState:
    """Return the processes of this run, started by torchrun or accelerate, on a CPU too."""
    return PartialState(cpu=ON_CPU)


def require_one_process() -> None:
    """Raise a TrainingError if torchrun or accelerate started this run in several processes."""
    if processes().num_processes > 1:
        raise TrainingError("this script trains in one process: start it with python, not with torchrun or accelerate")


def on_main_process(compute: Callable[[], T]) -> T:
    """Call a function in the main process. All processes return its result, or raise an error with its message."""
    state = processes()
    if state.num_processes == 1:
        return compute()
    found, failure = [None, None], None  # found: the result and the message of an error
    if state.is_main_process:
        try:
            found[0] = compute()
        except Exception as error:  # must reach the other processes, which wait for the broadcast
            failure, found[1] = error, sentence_of(error)
    broadcast_object_list(found)
    if found[1] is not None:
        raise failure or TrainingError(found[1])
    return found[0]


def device_batch_size(batch_size: int, limit: int) -> int:
    """Return the largest divisor of a batch size that is at most `limit`, and at least 1.

    >>> device_batch_size(16, limit=6)
    4
    """
    return next(n for n in range(max(1, min(batch_size, limit)), 0, -1) if batch_size % n == 0)
