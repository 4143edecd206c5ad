"""Describe the checkpoint in a folder: a saved model, or one of the original framework."""

from pathlib import Path

from ..folder.legacy_folder import CONFIGS, GENERATION_CONFIG, VOCABULARY, find_files, find_weights, several_weights
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
    if config is None or not (pytorch or others or config.name == "config.json"):
        raise ValueError(
            f"{shown} contains no recognisable checkpoint: it has {config.name if config else 'no config.json'} and "
            f"{'weights' if pytorch or others else 'no weights'}"
        )
    if pytorch is not None or not others:
        described = saved_info(folder, config, pytorch, shown, name, has_data)
    else:
        notes = [several_weights(folder, others)] if len(others) > 1 else []
        described = legacy_info(find_files(folder, others[0]), shown, name, has_data, notes)
    described.files = sorted(sizes.items())
    return described
