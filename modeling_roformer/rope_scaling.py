"""Frequencies for texts longer than those a model was trained on: interpolation, dynamic NTK, YaRN.

The formulas are transformers' (`ROPE_INIT_FUNCTIONS`). Here they are pure functions of the config and, for dynamic NTK,
of each sequence's own length: nothing is remembered from one call to the next, and no text changes its neighbour's.
"""

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from .configuration import RoFormerConfig
from .rope_parameters import PAPER_ROPE
from .rotary import inverse_frequencies


def parameters_of(config: RoFormerConfig) -> dict:
    """A config's `rope_parameters`, and the paper's where it has no such field."""
    return getattr(config, "rope_parameters", None) or PAPER_ROPE


class _TrainedConfig:
    """What transformers' functions read of a config; they take the trained length from max_position_embeddings."""

    def __init__(self, config: RoFormerConfig, width: int):
        self.rope_parameters = config.rope_parameters
        self.head_dim = width
        self.hidden_size, self.num_attention_heads = width, 1
        self.max_position_embeddings = config.rope_parameters.get("original_max_position_embeddings")

    def standardize_rope_params(self) -> None:
        """Done when the config was made."""


def scaled_inverse_frequencies(
    config: RoFormerConfig, lengths: int | torch.Tensor, device: torch.device, width: int | None = None
) -> tuple[torch.Tensor, float]:
    """The frequencies θ_i that a config asks for, and the factor that its scores are multiplied by.

    Args:
        lengths: number of tokens of each sequence, shape (b,), or one number for all; only dynamic NTK looks at it.
        width: dimensions to rotate, those of `config.rotary_dim` where None.

    Returns:
        Frequencies of shape (width / 2,), or (b, width / 2) where they differ, in radians a position, and YaRN's
        attention factor (1.0 for the others), which applies to query and key alike.
    """
    parameters, width = parameters_of(config), width or config.rotary_dim
    if parameters["rope_type"] == "default":
        return inverse_frequencies(width, parameters["rope_theta"], device=device), 1.0
    view = _TrainedConfig(config, width)
    # Tracing makes a tensor of one number, too.
    seq_len = lengths[:, None] if isinstance(lengths, torch.Tensor) and lengths.ndim else lengths
    return ROPE_INIT_FUNCTIONS[parameters["rope_type"]](view, device, seq_len=seq_len)


def attention_factor(config: RoFormerConfig) -> float:
    """YaRN's factor on the scores: on query and key each, hence squared."""
    if parameters_of(config)["rope_type"] != "yarn":
        return 1.0
    with torch.device("cpu"):  # models are made on the meta device
        return scaled_inverse_frequencies(config, 1, torch.device("cpu"))[1] ** 2


def depends_on_length(config: RoFormerConfig) -> bool:
    """Whether the frequencies change with a sequence's length, so that no rotated key can be kept for longer ones."""
    return parameters_of(config)["rope_type"] == "dynamic"
