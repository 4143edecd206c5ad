"""Describe the checkpoint in a folder: a saved model, or one of the original framework."""

from pathlib import Path

from ..errors import CheckpointError
from ..folder.legacy_folder import CONFIGS, GENERATION_CONFIG, VOCABULARY, LegacyFiles, find_files, find_weights
from ..formats.pytorch_files import PYTORCH
from .checkpoint_info import CheckpointInfo
from .legacy_info import legacy_info
from .saved_info import saved_info

# The files that describe a checkpoint, besides its index.
SMALL = (*CONFIGS, VOCABULARY, "tokenizer_config.json", "tokenizer.json", GENERATION_CONFIG, "README.md")


def folder_info(folder: Path, sizes: dict[str, int], shown: str, name: str, has_data: bool = True) -> CheckpointInfo:
    """Describe the checkpoint in a folder. `sizes` lists the files that belong to it; some may be missing.

    `shown` is the user's name for it, `name` the published one (legacy_folder.name_of). With `has_data=False` the
    weights are elsewhere, and are not reported as missing.
    """
    pytorch = next((file for file in PYTORCH if file in sizes), None)
    others = [weights for weights in find_weights(folder) if weights not in PYTORCH]
    config = next((folder / file for file in CONFIGS if file in sizes), None)
    if config is None:
        trouble = "weights, but no config.json" if pytorch or others else "no config.json or weights"
        raise ValueError(f"{shown} contains no recognisable checkpoint: it has {trouble}")
    if pytorch is None and not others and config.name != "config.json":
        raise ValueError(f"{shown} contains no recognisable checkpoint: it has {config.name}, but no weights")
    if pytorch is not None or not others:
        described = saved_info(folder, config, pytorch, shown, name, has_data)
    else:
        files, notes = LegacyFiles(config, folder / VOCABULARY, folder / others[0]), []
        try:
            files = find_files(folder)
        except CheckpointError as error:  # there are several, of which the first is described, or no vocabulary
            notes.append(str(error))
        described = legacy_info(files, shown, name, has_data, notes)
    described.files = sorted(sizes.items())
    return described
