"""Trainable frequencies: a parameter `encoder.inv_freq`, and how files store it.

The parameter is the offset of their logarithms from the frequencies of `rope_parameters`, and begins at 0. So a step of
the optimiser changes each frequency in proportion to itself, none becomes negative, and weight decay leads back to the
initial ones. Files and state dicts have the frequencies, under the same name, in float32.
"""

from typing import Any

import torch

from .configuration import RoFormerConfig
from .rope_scaling import scaled_inverse_frequencies


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
    """Replace the offset in a new state dict by the frequencies."""
    state_dict[f"{prefix}inv_freq"] = frequencies_of(encoder.config, state_dict[f"{prefix}inv_freq"])


def read_frequencies(encoder: Any, state_dict: dict, prefix: str, *args) -> None:
    """Replace the frequencies in a state dict that is loaded by their offset."""
    name = f"{prefix}inv_freq"
    if name in state_dict:
        state_dict[name] = offset_of(encoder.config, state_dict[name], name)
