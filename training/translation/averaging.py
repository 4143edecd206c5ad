"""The average of the last checkpoints, as in section 6.1 of arXiv:1706.03762."""

from pathlib import Path

import torch
from safetensors import safe_open

from ..errors import TrainingError

WEIGHTS = "model.safetensors"


def average_checkpoints(folder: str | Path, last: int) -> dict[str, torch.Tensor]:
    """Return the mean of the weights of the last checkpoints of Trainer in a folder.

    Args:
        folder: folder with checkpoint-1000, checkpoint-2000 and so on.
        last: number of checkpoints; of fewer, all are taken.

    Raises a TrainingError if there is no checkpoint.

    >>> model.load_state_dict(average_checkpoints("run", last=5), strict=False)  # tied weights are saved once
    """
    checkpoints = [path for path in Path(folder).glob("checkpoint-*") if path.name.rpartition("-")[2].isdecimal()]
    checkpoints = sorted(checkpoints, key=lambda path: int(path.name.rpartition("-")[2]))[-last:]
    if not checkpoints:
        raise TrainingError(f"{folder} has no checkpoint")
    total: dict[str, torch.Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for checkpoint in checkpoints:
        with safe_open(checkpoint / WEIGHTS, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118, a reader of safetensors, whose names only `keys` lists
                value = weights.get_tensor(name)
                total[name] = value.double() + total.get(name, 0)
                dtypes[name] = value.dtype
    return {name: (value / len(checkpoints)).to(dtypes[name]) for name, value in total.items()}
