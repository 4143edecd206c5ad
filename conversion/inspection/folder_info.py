"""Describe the checkpoint in a folder: a saved model, or one of the original framework."""

from pathlib import Path

from ..folder.legacy_folder import CONFIGS, GENERATION_CONFIG, INDEX, VOCABULARY, is_hdf5
from ..formats.pytorch_files import PYTORCH
from .checkpoint_info import CheckpointInfo
from .legacy_info import legacy_info
from .saved_info import saved_info

# The files that describe a checkpoint, besides its index.
SMALL = (*CONFIGS, VOCABULARY, "tokenizer_config.json", "tokenizer.json", GENERATION_CONFIG, "README.md")


def folder_info(folder: Path, sizes: dict[str, int], shown: str, name: str, unpacked: bool = True) -> CheckpointInfo:
    """Describe the checkpoint in a folder. `sizes` lists the files that belong to it; some may be missing.

    `shown` is the user's name for it, `name` the published one (legacy_folder.name_of). With `unpacked=False` the data
    files of a legacy checkpoint are elsewhere, and are not reported as missing.
    """
    indices = sorted(file.removesuffix(INDEX) for file in sizes if file.endswith(INDEX) and "/" not in file)
    data = tuple(f"{prefix}.data-" for prefix in indices)
    keras = [file for file in sorted(sizes) if "/" not in file and not file.startswith(data) and is_hdf5(folder / file)]
    saved = [file for file in PYTORCH if file in sizes]
    config = next((folder / file for file in CONFIGS if file in sizes), None)
    files = sorted(sizes.items())
    if config is None:
        what = "it has weights, but no config.json" if saved or indices or keras else "it has no config.json or weights"
        raise ValueError(f"{shown} contains no recognisable checkpoint: {what}")
    if saved or not (indices or keras):
        if config.name != "config.json" and not saved:
            raise ValueError(f"{shown} contains no recognisable checkpoint: it has {config.name}, but no weights")
        found = saved_info(folder, config, saved[0] if saved else None, shown, name, unpacked)
    else:
        found = legacy_info(folder, config, (indices + keras)[0], shown, name, unpacked)
        if len(indices + keras) > 1:
            found.notes.append(f"it has several checkpoints; this is the first of: {', '.join(indices + keras)}")
            choice = f"`roformer convert --checkpoint {(indices + keras)[0]}`"
            found.loads_with = found.loads_with and found.loads_with.replace("`roformer convert`", choice)
    found.files = files
    return found
