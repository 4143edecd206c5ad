"""What this machine computes on, and by how many processes."""

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
    """The processes of this run, those of torchrun or accelerate, on a CPU too."""
    return PartialState(cpu=ON_CPU)


def by_main_process(compute: Callable[[], T]) -> T:
    """Return in all processes what a function returns in the main one.

    Where it raises an error there, the others raise a TrainingError of the same text.
    """
    state = processes()
    if state.num_processes == 1:
        return compute()
    found: list = [None, None]
    failure = None
    if state.is_main_process:
        try:
            found[0] = compute()
        except Exception as error:  # for which the others must not wait
            failure, found[1] = error, sentence_of(error)
    broadcast_object_list(found)
    if found[1] is not None:
        raise failure or TrainingError(found[1])
    return found[0]
