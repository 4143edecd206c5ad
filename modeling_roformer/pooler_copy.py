"""The copy of RoFormer-Sim's pooler that sentence-transformers reads, which does not use a model's own pooler."""

import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

POOLERS = ("roformer.pooler.dense.", "pooler.dense.")  # key prefixes in models with a head, and without one
DENSE, WEIGHTS, MODULES = "2_Dense", "model.safetensors", "modules.json"


def pooler_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the pooler's tensors, which may be in any of the weights files."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            keys = [key for key in weights.keys() if key.startswith(POOLERS)]  # noqa: SIM118, it is not a dict
            found |= {key.rpartition(".")[2]: weights.get_tensor(key) for key in keys}
    return found


def has_pooler_copy(folder: Path, dense: Path) -> bool:
    """Return True if the weights of a Dense are those of the pooler: sentence-transformers trains only the former."""
    try:
        copy = {name.removeprefix("linear."): weight for name, weight in load_file(dense / WEIGHTS).items()}
        own = pooler_weights(folder)
    except (OSError, SafetensorError):  # most folders have no Dense
        return False
    return copy.keys() == own.keys() and all(torch.equal(copy[name], own[name]) for name in own)


def renew_pooler_copy(folder: Path) -> None:
    """Write the copy of an earlier model's pooler again, or remove it with the list of modules that names it.

    Without a pooler, the folder is one of transformers alone: sentence-transformers would apply the earlier model's.
    """
    if pooler_weights(folder):
        write_pooler_copy(folder)
        return
    (folder / MODULES).unlink(missing_ok=True)
    shutil.rmtree(folder / DENSE)


def write_pooler_copy(folder: Path) -> None:
    """Write the pooler's weights again, where sentence-transformers reads them."""
    dense = {f"linear.{name}": tensor for name, tensor in pooler_weights(folder).items()}
    (folder / DENSE / WEIGHTS).unlink(missing_ok=True)  # a link, as in huggingface_hub's cache, is replaced
    save_file(dense, folder / DENSE / WEIGHTS, metadata={"format": "pt"})
