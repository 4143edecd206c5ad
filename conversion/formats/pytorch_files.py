"""What PyTorch's files of weights are called, and how they begin; torch is not needed to tell."""

import json
from pathlib import Path

from ...tokenization.whole_file import read_whole
from ..errors import CheckpointError
from .zip_archive import is_zip

# PyTorch's weights, in the order in which transformers prefers them; a folder that has several holds one model twice.
PYTORCH = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
PYTORCH_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")  # of files that may have any name


def is_pytorch(path: Path) -> bool:
    """Whether a file of weights is of one of PyTorch's formats, or the index of such files.

    Names that anybody may have given (`best_model.pt`) are decided by how the file begins.
    """
    if path.name in PYTORCH or path.suffix == ".safetensors":
        return True
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(2)
    return is_zip(path) or start[:1] == b"\x80"  # what a pickle of protocol 2 and later begins with


def is_safetensors(path: Path) -> bool:
    """Whether a file of weights is safetensors', by its name."""
    return path.suffix == ".safetensors"


def read_index(path: Path) -> dict[str, str]:
    """Name of each tensor -> the file that it is in; raises CheckpointError where the file says nothing of the kind."""
    try:
        places = json.loads(read_whole(path))["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError):
        places = None
    if not isinstance(places, dict) or not places or not all(isinstance(place, str) for place in places.values()):
        raise CheckpointError(f"{path} is no index of weights")
    return places
