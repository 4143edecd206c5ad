"""The average of a run's last checkpoints, which is better than any one of them (arXiv:1706.03762, section 6.1)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

from ..errors import TrainingError

WEIGHTS = "model.safetensors"


def average_checkpoints(folders: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """The mean of each weight over the checkpoints, in float64 until it is rounded, for `load_state_dict(strict=False)`.

    Weights that are shared stand once, as in the files. Raises a TrainingError where checkpoints have not the same weights.
    """
    if not folders:
        raise TrainingError("there are no checkpoints to average")
    total: dict[str, torch.Tensor] = {}
    for number, folder in enumerate(folders):
        weights = load_file(Path(folder) / WEIGHTS)
        if number and {name: x.shape for name, x in weights.items()} != {name: x.shape for name, x in total.items()}:
            raise TrainingError(f"{folder} has other weights than {folders[0]}, and cannot be averaged with it")
        for name, weight in weights.items():
            total[name] = weight.double() + total[name] if number else weight.double()
        dtypes = {name: weight.dtype for name, weight in weights.items()}
    return {name: (weight / len(folders)).to(dtypes[name]) for name, weight in total.items()}
