"""Frequencies for texts longer than the training length: interpolation, dynamic NTK, YaRN.

The formulas are transformers' (`ROPE_INIT_FUNCTIONS`), as pure functions of the config and, for dynamic NTK, of each
sequence's length: no call and no other text of the batch changes them.
"""

from contextlib import nullcontext
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from .configuration import RoFormerConfig
from .input_checks import is_traced
from .rope_parameters import PAPER_ROPE
from .rotary import inverse_frequencies


def parameters_of(config: RoFormerConfig) -> dict:
    """Return a config's `rope_parameters`, or the paper's if it has no such field."""
    return getattr(config, "rope_parameters", None) or PAPER_ROPE


class _TrainedConfig:
    """The fields that transformers' functions read; they take the training length from max_position_embeddings."""

    def __init__(self, config: RoFormerConfig, width: int):
        self.rope_parameters = config.rope_parameters
        self.head_dim = width
        self.hidden_size, self.num_attention_heads = width, 1
        self.max_position_embeddings = parameters_of(config).get("original_max_position_embeddings")

    def standardize_rope_params(self) -> None:
        """Do nothing: the config has done it."""


def scaled_inverse_frequencies(
    config: RoFormerConfig, lengths: int | torch.Tensor, device: torch.device, width: int | None = None
) -> tuple[torch.Tensor, float]:
    """Return the frequencies θ_i of a config, and YaRN's attention factor.

    Args:
        lengths: number of tokens of each sequence, shape (b,), or one number for all; read by dynamic NTK only.
        width: number of dimensions to rotate; `config.rotary_dim` if None.

    Returns:
        Frequencies of shape (width / 2,), or (b, width / 2) if they differ, in radians per position, and the factor on
        queries and on keys (1.0 without YaRN).
    """
    parameters, width = parameters_of(config), width or config.rotary_dim
    if parameters["rope_type"] == "default":
        return inverse_frequencies(width, parameters["rope_theta"], device=device), 1.0
    view: Any = _TrainedConfig(config, width)
    # Under tracing, one number is a tensor too.
    seq_len = lengths[:, None] if isinstance(lengths, torch.Tensor) and lengths.ndim else lengths
    # transformers makes tensors on the default device, and moves them. Compilers do so ahead.
    with nullcontext() if is_traced() else torch.device(device):
        return ROPE_INIT_FUNCTIONS[parameters["rope_type"]](view, device, seq_len=seq_len)


def attention_factor(config: RoFormerConfig) -> float:
    """Return YaRN's factor on the scores: it multiplies query and key, hence is squared."""
    if parameters_of(config)["rope_type"] != "yarn":
        return 1.0
    return scaled_inverse_frequencies(config, 1, torch.device("cpu"))[1] ** 2


def depends_on_length(config: RoFormerConfig) -> bool:
    """Return whether the frequencies depend on a sequence's length, so that rotated keys cannot be cached."""
    return parameters_of(config)["rope_type"] == "dynamic"
