"""The device and the processes of a run."""

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from modeling_roformer.output.device import device_of

ON_CPU = device_of().type == "cpu"
_DEFAULT_TOKENS = 16_384  # if the memory is not known, and on a CPU, whose caches are small
# Memory per token of a model of 12 layers of width 768: about that of float32, twice that of bfloat16.
_BYTES_PER_TOKEN = 2**20
_BASE_SIZE = 12 * 768


def processes() -> PartialState:
    """Return the processes of this run, started by torchrun or accelerate, on a CPU too."""
    return PartialState(cpu=ON_CPU)


def has_bfloat16() -> bool:
    """Return whether the device of this run is a GPU that computes in bfloat16, and not only by emulation."""
    return not ON_CPU and torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def default_device_tokens(layers: int, width: int) -> int:
    """Return the number of tokens that each device computes at once in training: as many as fit the smallest one.

    All processes get the same number, since they have to accumulate the same number of batches.
    """
    device = processes().device
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
    return min(gather_object([tokens_for_memory(memory, layers, width)]))


def tokens_for_memory(memory: int | None, layers: int, width: int) -> int:
    """Return the number of tokens that a GPU with this memory, in bytes, computes at once in training: a power of two.

    >>> tokens_for_memory(80 * 2**30, layers=12, width=768)
    65536
    """
    if memory is None:
        return _DEFAULT_TOKENS
    tokens = memory * _BASE_SIZE // (_BYTES_PER_TOKEN * max(_BASE_SIZE, layers * width))
    return 1 << max(tokens.bit_length() - 1, 0)
