"""Trainable frequencies: a parameter `encoder.log_inv_freq_offset`.

The parameter is the offset of their logarithms from the frequencies of `rope_parameters`, and begins at 0. So a step of
the optimiser changes each frequency in proportion to itself, none becomes negative, and weight decay leads back to the
initial ones. Version 0.2 trained and saved the frequencies themselves, as `encoder.inv_freq`; its files are read.
"""

from typing import Any

import torch

from .configuration import RoFormerConfig
from .rope_scaling import scaled_inverse_frequencies

OLDER_NAME, NAME = "inv_freq", "log_inv_freq_offset"


def offset_of(config: RoFormerConfig, frequencies: torch.Tensor, name: str) -> torch.Tensor:
    """Return the offset of trained frequencies; raise a ValueError unless they are positive and finite."""
    initial = scaled_inverse_frequencies(config, 1, frequencies.device)
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


def read_older_frequencies(encoder: Any, state_dict: dict, prefix: str, *args) -> None:
    """Replace the frequencies in a state dict of version 0.2, which is loaded, by their offset."""
    frequencies = state_dict.pop(f"{prefix}{OLDER_NAME}", None)
    if frequencies is not None:
        state_dict[f"{prefix}{NAME}"] = offset_of(encoder.config, frequencies, f"{prefix}{OLDER_NAME}")
