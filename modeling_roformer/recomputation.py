"""Activations that backward computes again rather than keeps: the widest tensor of a layer, and the cheapest to make."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch.autograd.graph import saved_tensors_hooks


def recomputed_in_backward(
    output: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor], argument: torch.Tensor
) -> AbstractContextManager:
    """Within this context autograd does not keep `output`, which is `function(argument)`, but computes it again.

    Worth it where `argument` is kept anyway, as GELU's is by its own derivative, and `function` costs little. Where
    autograd keeps nothing, or is traced by a compiler, which decides by itself, the context does nothing.

    ```python
    >>> activated = gelu(wide)
    >>> with recomputed_in_backward(activated, gelu, wide):
    ...     narrow = linear(activated)  # its derivative by the weight is a product with `activated`
    ```
    """
    if (
        type(output) is not torch.Tensor
        or not (output.requires_grad and torch.is_grad_enabled() and output.is_contiguous())
        or torch.compiler.is_compiling()
        or not torch._C._autograd._saved_tensors_hooks_is_enabled()  # not under torch.func's transforms
    ):
        return nullcontext()
    address, numel = output.data_ptr(), output.numel()  # the tensor itself must not stay alive

    def pack(saved: torch.Tensor):
        if saved.numel() != numel or saved.data_ptr() != address:
            return saved
        shape, stride = saved.shape, saved.stride()  # linear layers keep a view with fewer dimensions
        return lambda: function(argument).contiguous().as_strided(shape, stride)

    return saved_tensors_hooks(pack, lambda packed: packed() if callable(packed) else packed)
