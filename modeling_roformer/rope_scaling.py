"""Frequencies for texts longer than the training length: interpolation, dynamic NTK, YaRN.

They are transformers' (`ROPE_INIT_FUNCTIONS`), in float64 and as pure functions of the config and, for dynamic NTK, of
each sequence's length: no call and no other text of the batch changes them.
"""

import math

import torch

from .configuration import RoFormerConfig
from .rope_parameters import PAPER_ROPE
from .rotary import inverse_frequencies


def parameters_of(config: RoFormerConfig) -> dict:
    """Return a config's `rope_parameters`, or the paper's if it has no such field."""
    return getattr(config, "rope_parameters", None) or PAPER_ROPE


def scaled_inverse_frequencies(
    config: RoFormerConfig, lengths: int | torch.Tensor, device: torch.device, width: int | None = None
) -> torch.Tensor:
    """Return the frequencies θ_i of a config, float64, in radians per position.

    Args:
        lengths: length of each sequence, shape (b,), or of each token's, shape (b, s), or one number for all; read by
            dynamic NTK only.
        width: number of dimensions to rotate; `config.rotary_dim` if None.

    Returns:
        Shape (width / 2,), or (*lengths.shape, width / 2) if they differ.
    """
    parameters, width = parameters_of(config), width or config.rotary_dim
    rope_type, factor = parameters["rope_type"], parameters.get("factor", 1.0)
    plain = inverse_frequencies(width, parameters["rope_theta"], device=device)
    if rope_type == "linear":
        return plain / factor
    if rope_type == "dynamic":
        trained = parameters["original_max_position_embeddings"]
        if isinstance(lengths, torch.Tensor):
            lengths = lengths.to(plain).clamp(min=trained)[..., None]
        else:
            lengths = max(lengths, trained)
        # The base grows by this power of d / (d − 2): θ_1 stays, and the lowest frequency is divided by it.
        growth = factor * lengths / trained - (factor - 1)
        exponents = torch.arange(0, width, 2, dtype=plain.dtype, device=plain.device) / max(width - 2, 1)
        return plain * growth**-exponents
    if rope_type == "yarn":
        ramp = yarn_ramp(parameters, width, plain.device)
        return plain * (1 - ramp) + plain / factor * ramp
    return plain


def yarn_ramp(parameters: dict, width: int, device: torch.device) -> torch.Tensor:
    """Return how far YaRN interpolates each frequency: 0 not at all, 1 by the whole factor; shape (width / 2,).

    The ramp is transformers', linear in i, between the dimensions that turn `beta_fast` and `beta_slow` times within the
    trained length. That of the paper (arXiv:2309.00071, section 3.2) is linear in the number of turns, between the same
    two, and lowers the frequencies between them further: at a factor of 8 to a value up to 2.4 times smaller.
    """

    def dimension(turns: float) -> float:
        trained, theta = parameters["original_max_position_embeddings"], parameters["rope_theta"]
        return width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(parameters.get("beta_fast") or 32), dimension(parameters.get("beta_slow") or 1)
    if parameters.get("truncate") is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    high += 0.001 if low == high else 0.0
    return ((torch.arange(width // 2, dtype=torch.float64, device=device) - low) / (high - low)).clamp(0, 1)


def attention_factor(config: RoFormerConfig) -> float:
    """Return YaRN's factor on the scores: that of transformers multiplies query and key, hence is squared."""
    parameters = parameters_of(config)
    if parameters["rope_type"] != "yarn":
        return 1.0

    def at(mscale: float) -> float:
        return 0.1 * mscale * math.log(parameters["factor"]) + 1.0

    factor, mscale = parameters.get("attention_factor"), parameters.get("mscale")
    if factor is None:
        of_all = parameters.get("mscale_all_dim")
        factor = at(mscale) / at(of_all) if mscale and of_all else at(1.0)
    return factor**2


def depends_on_length(config: RoFormerConfig) -> bool:
    """Return whether the frequencies depend on a sequence's length, so that rotated keys cannot be cached."""
    return parameters_of(config)["rope_type"] == "dynamic"
