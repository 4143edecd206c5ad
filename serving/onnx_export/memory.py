"""How long a text ONNX Runtime has memory for: its attention holds whole matrices, which PyTorch's does not.

Dimensions in the shapes: s sequence length.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ServingError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Of shape (heads, s, s), as measured on 1,024 to 3,072 tokens: the scores, the mask added to them, their softmax, and that
# without NaN; and NEZHA's, which also picks a product for each distance.
MATRICES, NEZHAS_MATRICES = 4, 9
BYTES = 4  # of a float32


def check_memory(config: PreTrainedConfig, shape: tuple[int, ...], text: str) -> None:
    """Raises ServingError where the inputs of a text, of this shape, need more memory than there is.

    >>> check_memory(model.config, (1, 1_000_000), "text 7")
    ServingError: text 7 has 1,000,000 tokens, for which ONNX Runtime needs about 64,061 GB, and 12 GB are free: …
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
            f"{text} has {length:,} tokens, for which ONNX Runtime needs about {needed / 1e9:,.1f} GB, and "
            f"{free / 1e9:,.1f} GB are free: cut it to {fits:,} tokens or fewer"
        )


def bytes_needed(config: PreTrainedConfig, rows: int, length: int) -> int:
    """What ONNX Runtime allocates at its peak for so many sequences of this length, beside the weights."""
    matrices = _matrices(config) * config.num_attention_heads * length
    # Logits and their copy in PyTorch; what a layer keeps is less.
    vectors = 2 * config.vocab_size + 4 * config.intermediate_size
    return BYTES * rows * length * (matrices + vectors)


def _matrices(config: PreTrainedConfig) -> int:
    if getattr(config, "attention_type", "softmax") == "linear":
        return 0
    return NEZHAS_MATRICES if config.model_type == "nezha" else MATRICES


def free_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not say it (it is Linux that does)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
