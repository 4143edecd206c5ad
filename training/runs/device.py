"""The device and the processes of a run."""

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import PreTrainedModel

from modeling_roformer.output.device import device_of

_KIND = device_of().type
ON_CPU = _KIND == "cpu"
# Whether batches are copied while the device computes, from pinned memory. Apple's GPUs have none, and such a copy from
# other memory can be wrong there without an error.
COPIES_AHEAD = _KIND == "cuda"
_DEFAULT_TOKENS = 16_384  # if the memory is not known, and on a CPU, whose caches are small
# Memory per token of a model of 12 layers of width 768: about that of float32, twice that of bfloat16.
_BYTES_PER_TOKEN = 2**20
_BASE_SIZE = 12 * 768
_COPIES = 4  # of each weight: itself, its gradient, and AdamW's two moments


def processes() -> PartialState:
    """Return the processes of this run, started by torchrun or accelerate, on a CPU too."""
    return PartialState(cpu=ON_CPU)


def has_bfloat16() -> bool:
    """Return whether the device of this run is a GPU that computes in bfloat16, and not only by emulation."""
    return not ON_CPU and torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def default_device_tokens(model: PreTrainedModel) -> int:
    """Return the number of tokens that each device computes at once in training: as many as fit the smallest one.

    All processes get the same number, since they have to accumulate the same number of batches.
    """
    config, device = model.config, processes().device
    weights = sum(weight.nbytes for weight in model.parameters())
    tokens = tokens_for_memory(_memory(device), config.num_hidden_layers, config.hidden_size, weights)
    if device.type == "mps":  # all other programs share its memory
        tokens = min(tokens, _DEFAULT_TOKENS)
    return min(gather_object([tokens]))


def _memory(device: torch.device) -> int | None:
    """Return the memory of a device in bytes, None if it is not known."""
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    if device.type in ("cuda", "xpu"):
        return torch.get_device_module(device).get_device_properties(device).total_memory
    return None


def tokens_for_memory(memory: int | None, layers: int, width: int, weights: int = 0) -> int:
    """Return the number of tokens that a GPU with this memory computes at once in training: a power of two.

    Args:
        memory, weights: memory of the GPU and of the model's weights, in bytes.

    >>> tokens_for_memory(80 * 2**30, layers=12, width=768, weights=4 * 124_000_000)
    65536
    """
    if memory is None:
        return _DEFAULT_TOKENS
    left = max(memory - _COPIES * weights, 0)
    tokens = left * _BASE_SIZE // (_BYTES_PER_TOKEN * max(_BASE_SIZE, layers * width))
    return 1 << max(tokens.bit_length() - 1, 0)
