"""The names and first bytes of PyTorch's weights files, which are recognised without torch."""

from pathlib import Path
from zipfile import is_zipfile

from modeling_roformer.files.reading import read_json

from ..errors import CheckpointError

# PyTorch's weights; transformers prefers the earlier ones. A folder with several has the same model twice.
PYTORCH = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
PYTORCH_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")  # of files that may have any name


def is_pytorch(path: Path) -> bool:
    """Return whether a weights file is in one of PyTorch's formats, or the index of such files.

    For names that users choose (`best_model.pt`), the first bytes decide.
    """
    if path.name in PYTORCH or path.suffix == ".safetensors":
        return True
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        start = file.read(2)
    return is_zipfile(path) or start[:1] == b"\x80"  # the start of a pickle of protocol 2 or later


def read_index(path: Path) -> dict[str, str]:
    """Return name of each tensor -> its file; raise CheckpointError if the index lacks it."""
    places = read_json(path).get("weight_map")
    if not places:
        raise CheckpointError(f"{path} has no weight_map, so it is not a weights index")
    return places
