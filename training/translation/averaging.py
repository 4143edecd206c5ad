"""Average of a run's last checkpoints, which is better than a single one (arXiv:1706.03762, section 6.1)."""

import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ..errors import TrainingError
from ..runs.checkpoints import checkpoints, require_undamaged

WEIGHTS = "model.safetensors"
_logger = logging.getLogger(__name__)


def average_of_last(folder: str | Path, number: int) -> dict[str, torch.Tensor]:
    """Verify and average the last `number` checkpoints of a run. If it has fewer, log a warning and average these."""
    last = checkpoints(Path(folder))[:number]
    for checkpoint in last:
        require_undamaged(checkpoint, "remove it to average the others")
    if len(last) < number:
        _logger.warning("%s has only %s of %s checkpoints: averaging these", folder, len(last), number)
    return average_checkpoints(last)


def average_checkpoints(folders: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """Return the mean of each weight over the checkpoints, computed in float64, for `load_state_dict(strict=False)`.

    Tied weights appear once, as in the files. Raises a TrainingError if the names or shapes of weights differ between
    checkpoints, or a checkpoint cannot be read.
    """
    if not folders:
        raise TrainingError("there are no checkpoints to average")
    total: dict[str, torch.Tensor] = {}
    for number, folder in enumerate(folders):
        try:
            weights = load_file(Path(folder) / WEIGHTS)
        except SafetensorError as error:
            raise TrainingError(f"{Path(folder) / WEIGHTS} is damaged ({error}), and cannot be averaged") from None
        if number and {name: x.shape for name, x in weights.items()} != {name: x.shape for name, x in total.items()}:
            raise TrainingError(
                f"{folder} cannot be averaged with {folders[0]}: its weights have other names or shapes"
            )
        for name, weight in weights.items():
            total[name] = weight.double() + total[name] if number else weight.double()
        dtypes = {name: weight.dtype for name, weight in weights.items()}
    return {name: (weight / len(folders)).to(dtypes[name]) for name, weight in total.items()}
