"""Memory that ONNX Runtime needs for a text. Unlike PyTorch's, its attention materialises whole matrices."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ServingError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Matrices of shape (heads, length, length), measured on 1,024 to 3,072 tokens: scores, masked scores, softmax, softmax
# without NaN. NEZHA also gathers a product for each distance.
MATRICES, NEZHAS_MATRICES = 4, 9
BYTES = 4  # of a float32


def check_memory(config: PreTrainedConfig, shape: tuple[int, ...], text: str) -> None:
    """Raise ServingError if ONNX Runtime needs more memory than is free for inputs of this shape.

    >>> check_memory(model.config, (1, 1_000_000), "text 7")
    ServingError: text 7 has 1,000,000 tokens, for which ONNX Runtime needs about 64,061 GB; 12 GB are free. …
    """
    free = free_bytes()
    rows, length = math.prod(shape[:-1]), shape[-1]
    needed = bytes_needed(config, rows, length)
    if free is not None and needed > free:
        fits, too_long = 0, length
        while too_long - fits > 1:
            half = (fits + too_long) // 2
            fits, too_long = (half, too_long) if bytes_needed(config, rows, half) <= free else (fits, half)
        raise ServingError(
            f"{text} has {length:,} tokens, for which ONNX Runtime needs about {needed / 1e9:,.1f} GB; "
            f"{free / 1e9:,.1f} GB are free. Truncate it to at most {fits:,} tokens"
        )


def bytes_needed(config: PreTrainedConfig, rows: int, length: int) -> int:
    """Return ONNX Runtime's peak allocation for `rows` sequences of this length, without the weights."""
    matrices = NEZHAS_MATRICES if config.model_type == "nezha" else MATRICES
    if getattr(config, "attention_type", "softmax") == "linear":
        matrices = 0
    # The logits and PyTorch's copy of them; layers keep less.
    vectors = 2 * config.vocab_size + 4 * config.intermediate_size
    return BYTES * rows * length * (matrices * config.num_attention_heads * length + vectors)


def free_bytes() -> int | None:
    """Return the memory available without swapping; None on systems other than Linux, which do not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
