"""Checks of what models are given, before anything is computed: one sentence that names the argument.

torch by itself says "index out of range in self" on a CPU, and on a GPU stops the whole process.
"""

import torch


def can_be_read(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values can decide anything: not under a compiler, an exporter, or on the meta device."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or tensor.device.type == "meta" or tensor.numel() == 0:
        return False
    return not (tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing())


def check_range(name: str, tensor: torch.Tensor | None, end: int | None, ignored: int | None = None) -> None:
    """Raises a ValueError unless all values lie from 0 to `end` - 1 (to anything where None), or are `ignored`.

    ```python
    >>> check_range("token_type_ids", torch.tensor([[0, 2]]), 2)
    ValueError: token_type_ids has the value 2, but must lie from 0 to 1
    ```
    """
    if tensor is None or tensor.is_floating_point() or not can_be_read(tensor):
        return
    if ignored is not None:
        tensor = tensor[tensor != ignored]
        if tensor.numel() == 0:
            return
    low, high = (value.item() for value in tensor.aminmax())
    if low < 0 or (end is not None and high >= end):
        allowed = "not be negative" if end is None else f"lie from 0 to {end - 1}"
        besides = "" if ignored is None else f", or be {ignored}"
        raise ValueError(f"{name} has the value {low if low < 0 else high}, but must {allowed}{besides}")


def check_same_shape(name: str, tensor: torch.Tensor | None, shape: tuple[int, ...]) -> None:
    """Raises a ValueError unless a tensor has that shape."""
    if tensor is not None and tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but the input needs {tuple(shape)}")
