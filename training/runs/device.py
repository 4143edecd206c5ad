"""The device and the processes of a run."""

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from modeling_roformer.output.device import device_of

ON_CPU = device_of().type == "cpu"
_USUAL_TOKENS = 16_384  # where the memory is not known, and on a CPU, whose caches are small
# Of a model of 12 layers of 768: twice what it takes in bfloat16, about what it takes in float32.
_BYTES_A_TOKEN = 2**20
_BASE = 12 * 768


def processes() -> PartialState:
    """Return the processes of this run, started by torchrun or accelerate, on a CPU too."""
    return PartialState(cpu=ON_CPU)


def has_bfloat16() -> bool:
    """Return whether the device of this run is a GPU that computes in bfloat16, and not only by emulation."""
    return not ON_CPU and torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def tokens_at_once(layers: int, width: int) -> int:
    """Return how many tokens each device of this run trains a model on at once: what the smallest of them has room for.

    All processes get the same number, since they have to accumulate the same number of batches.
    """
    device = processes().device
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    return min(gather_object([tokens_for(memory, layers, width)]))


def tokens_for(memory: int | None, layers: int, width: int) -> int:
    """Return how many tokens to train a model on at once, a power of two, by the memory of a GPU in bytes.

    >>> tokens_for(80 * 2**30, layers=12, width=768)
    65536
    """
    if memory is None:
        return _USUAL_TOKENS
    tokens = memory * _BASE // (_BYTES_A_TOKEN * max(_BASE, layers * width))
    return 1 << max(tokens.bit_length() - 1, 0)
