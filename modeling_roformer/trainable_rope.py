"""Trainable frequencies: a parameter `encoder.log_inv_freq_offset`, and the frequencies in files, `encoder.inv_freq`.

The parameter is the offset of their logarithms from the frequencies of `rope_parameters`, and begins at 0. So a step of
the optimiser changes each frequency in proportion to itself, none becomes negative, and weight decay leads back to the
initial ones. Files and state dicts have the frequencies, too, float32. What this package loads takes these, as those of
version 0.2 have nothing else; what loads a file without it takes the offset.
"""

from typing import Any

import torch

from .configuration import RoFormerConfig
from .rope_scaling import scaled_inverse_frequencies

OFFSET, FREQUENCIES = "log_inv_freq_offset", "inv_freq"


def initial_frequencies(config: RoFormerConfig, device: torch.device) -> torch.Tensor:
    """Return the frequencies of `rope_parameters`, float64, rounded as in files."""
    return scaled_inverse_frequencies(config, 1, device).float().double()


def frequencies_of(config: RoFormerConfig, offset: torch.Tensor) -> torch.Tensor:
    """Return the frequencies of an offset, float32, as files have them."""
    initial = initial_frequencies(config, offset.device)
    return (initial * offset.to(initial).exp()).float()


def offset_of(config: RoFormerConfig, frequencies: torch.Tensor, name: str) -> torch.Tensor:
    """Return the offset of frequencies of a file; raise a ValueError unless they are positive and finite."""
    initial = initial_frequencies(config, frequencies.device)
    if frequencies.shape != initial.shape:
        return frequencies  # the caller compares shapes
    is_wrong = ~((frequencies > 0) & frequencies.isfinite())
    if not frequencies.is_meta and is_wrong.any():
        i = int(is_wrong.int().argmax())
        raise ValueError(
            f"{name}[{i}] is {frequencies[i]:.3g}, but a frequency must be positive: use an earlier checkpoint of this "
            "training"
        )
    return (frequencies.to(initial) / initial).log().float()


def growth(config: RoFormerConfig, offset: torch.Tensor) -> torch.Tensor:
    """Return the factors, float64, by which training has changed the frequencies of a config.

    They are those of the rounded frequencies, so that a saved model computes the same.
    """
    return frequencies_of(config, offset) / initial_frequencies(config, offset.device)


def write_frequencies(encoder: Any, state_dict: dict, prefix: str, *args) -> None:
    """Put the present frequencies into a new state dict."""
    state_dict[f"{prefix}{FREQUENCIES}"] = frequencies_of(encoder.config, state_dict[f"{prefix}{OFFSET}"])


def read_frequencies(encoder: Any, state_dict: dict, prefix: str, *args) -> None:
    """Put the offset of the frequencies into a state dict that is loaded."""
    name = f"{prefix}{FREQUENCIES}"
    if name in state_dict:
        state_dict[f"{prefix}{OFFSET}"] = offset_of(encoder.config, state_dict[name], name)
