"""Checks of model inputs before anything is computed. Their errors name the argument, and they need one device sync.

Without them, torch raises "index out of range in self" on a CPU, and on a GPU the whole process stops.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.modeling_flash_attention_utils import FlashAttentionKwargs
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils import logging
from transformers.utils.generic import TransformersKwargs

logger = logging.get_logger("transformers.roformer")  # so that transformers' verbosity applies

# transformers' name of the cache in outputs and in `generate`. From 5.24 on it is "cache".
CACHE_NAME = next(x.name for x in fields(BaseModelOutputWithPast) if x.name in ("cache", "past_key_values"))
# Keyword arguments of `forward` that it does not name: of models in general and Trainer, of generation and losses, and
# of attention functions.
KNOWN_ARGUMENTS = frozenset(
    {
        *TransformersKwargs.__annotations__,
        *FlashAttentionKwargs.__annotations__,
        *("return_dict", "output_cross_attentions", "cache_position", "logits_to_keep", "ignore_index", "shift_labels"),
        *("sliding_window", "softcap", "s_aux", "position_bias", "cache", "block_table", "deterministic"),
        *("kernel_options", "tokenizer", "assistant_tokenizer"),
    }
)


def can_be_read(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has values to read: not under a compiler, an exporter, vmap or FakeTensorMode, or on the
    meta device."""
    functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    is_wrapped = getattr(functorch, "is_functorch_wrapped_tensor", lambda tensor: False)
    # A FakeTensor, which has no values, has a `fake_mode`.
    if is_traced() or is_wrapped(tensor) or hasattr(tensor, "fake_mode") or tensor.device.type == "meta":
        return False
    return tensor.numel() > 0 and not (tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing())


def has_float64(device: torch.device) -> bool:
    """Return whether a device computes in float64: Apple's GPUs do not, nor do some of Intel's."""
    if device.type == "xpu":
        return torch.xpu.get_device_properties(device).has_fp64
    return device.type != "mps"


def nonzero(mask: torch.Tensor, number: int) -> torch.Tensor:
    """Return the indices of the values of a mask that are True, shape (number, dimensions), without a device sync."""
    if mask.device.type == "mps":  # has no kernel for it before torch 2.12
        return mask.nonzero()
    return torch.nonzero_static(mask, size=number)


def is_traced() -> bool:
    """Return whether a compiler or an exporter traces this call."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_transformed() -> bool:
    """Return whether this call is inside a transform of torch.func, which allows no side effects."""
    # torch has no public name for it. If this one goes, torch raises an error of its own for what it cannot transform.
    return getattr(torch._C, "_are_functorch_transforms_active", bool)()


def check_tokens(input_ids: Any, inputs_embeds: Any, leading: tuple[str, ...] = ("batch",)) -> torch.Tensor:
    """Return the one of the two that is given; raise a ValueError unless it has the dimensions of a batch of texts.

    ```python
    >>> check_tokens(torch.tensor([2, 7, 3]), None)
    ValueError: input_ids has shape (3,); expected (batch, length)
    ```
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    name, tensor, dimensions = "input_ids", input_ids, (*leading, "length")
    if tensor is None:
        name, tensor, dimensions = "inputs_embeds", inputs_embeds, (*dimensions, "embedding_size")
    if tensor.ndim != len(dimensions):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected ({', '.join(dimensions)})")
    return tensor


def warn_of_unread(arguments: dict[str, object], forward: Callable, implementation: str) -> None:
    """Warn, once per name, of keyword arguments that nothing reads: they may be misspelt.

    Args:
        arguments: keyword arguments of `forward` that it does not name; None values are ignored.
        implementation: attention implementation; one that transformers does not have may read arguments of its own.
    """
    is_known = implementation in ("eager", "sdpa", "flex_attention") or is_flash(implementation)
    if not is_known or is_traced() or arguments.keys() <= KNOWN_ARGUMENTS:
        return
    for name in sorted(arguments.keys() - KNOWN_ARGUMENTS):
        if arguments[name] is not None:
            close = get_close_matches(name, [*inspect.signature(forward).parameters, "labels"], n=1)
            hint = f"did you mean {close[0]}?" if close else "it has no effect"
            logger.warning_once(f"forward does not read the argument {name}: {hint}")


def is_flash(implementation: str) -> bool:
    """Return whether an attention implementation of transformers is flash attention: it takes packed texts in one call,
    needs half precision, and masks nothing but padding and later tokens."""
    return "flash" in implementation


Range = tuple[str, Any, int | None, int | None]  # see `check_ranges`


def check_ranges(*ranges: Range, **scalars: torch.Tensor | None) -> dict[str, Any]:
    """Raise a ValueError unless all values of each tensor lie in its range.

    All values are read in one device sync. It waits until the device has finished all pending work, so a model should
    need few.

    Args:
        ranges: a name; a tensor or None; `end`, for values from 0 to `end` - 1, or None for no upper bound; and a value
            that is ignored, or None.
        scalars: integer or boolean tensors of one element to read in the same sync, or None.

    Returns:
        The value of each of `scalars` by its name, None for None.

    ```python
    >>> check_ranges(("token_type_ids", torch.tensor([[0, 2]]), 2, None))
    ValueError: token_type_ids has the value 2, but must lie from 0 to 1
    ```
    """
    readable = [x for x in ranges if x[1] is not None and not x[1].is_floating_point() and can_be_read(x[1])]
    to_read = [scalar for scalar in scalars.values() if scalar is not None]
    for _, tensor, _, ignored in readable:
        to_read += (tensor if ignored is None else tensor.masked_fill(tensor == ignored, 0)).aminmax()
    if not to_read:
        return scalars
    together = torch.stack([scalar.to(to_read[0].device, torch.long) for scalar in to_read])
    try:
        values = iter(together.tolist())
    except RuntimeError:  # torch 2.9 has no list of a tensor in torch.func
        values = iter([value.item() for value in together])
    results = {name: None if scalar is None else next(values) for name, scalar in scalars.items()}
    # The lowest and the highest value of each tensor follow each other in `values`.
    for (name, _, end, ignored), low, high in zip(readable, values, values, strict=True):
        if low < 0 or (end is not None and high >= end):
            allowed = "not be negative" if end is None else f"lie from 0 to {end - 1}"
            besides = "" if ignored is None else f", or be {ignored}"
            raise ValueError(f"{name} has the value {low if low < 0 else high}, but must {allowed}{besides}")
    return results


def check_shape(name: str, tensor: torch.Tensor | None, *shapes: tuple[int, ...]) -> None:
    """Raise a ValueError unless an argument is None or has one of the shapes."""
    if tensor is not None and tuple(tensor.shape) not in shapes:
        expected = " or ".join(str(tuple(shape)) for shape in shapes)
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected {expected}")


def count_in_mask(attention_mask: object, value: int, first: bool = False) -> torch.Tensor | None:
    """Return the number of tokens with a value in a mask of shape (b, k), only of the first ones of the texts if
    `first`, as a 0-d tensor, which the caller reads in its one device sync. None for other masks."""
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.ndim != 2 or not can_be_read(attention_mask):
        return None
    return ((attention_mask[:, 0] if first else attention_mask) == value).sum()


def check_mask_values(name: str, attention_mask: Any, zeros: int | None, ones: int | None) -> None:
    """Raise a ValueError unless a mask holds zeros and ones alone, given their numbers; None if they were not read."""
    if zeros is not None and ones is not None and zeros + ones != attention_mask.numel():
        raise ValueError(
            f"{name} has values other than 0 and 1: pass 1 for each token and 0 for padding; a mask that is added to "
            "the scores has four dimensions"
        )


def given_cache(past_key_values: Cache | None, kwargs: dict[str, Any]) -> Cache | None:
    """Return the cache that a call was given under either name, and remove `cache` from its keyword arguments."""
    # Before 5.24, `cache` was an argument of attention functions: the pages of continuous batching, no Cache.
    cache = kwargs.pop("cache") if isinstance(kwargs.get("cache"), Cache) else None
    if cache is not None and past_key_values is not None:
        raise ValueError(
            "cache and past_key_values are two names of one argument: pass one of them. A prefix of PEFT needs PEFT "
            "0.22 or newer, or transformers below 5.24"
        )
    return past_key_values if cache is None else cache
