"""Describe a checkpoint without loading it: configuration, vocabulary, headers of the weights, and the card's facts.

Tensor data is not read, except for the few bytes with the names of a tf.keras checkpoint's layers.
folder_info.py describes folders, hub_info.py repositories.
"""

import tempfile
from pathlib import Path

from modeling_roformer.files.model_folder import special_file

from ..errors import CheckpointError
from ..folder.legacy_folder import CONFIGS, INDEX, name_of, unpack
from .checkpoint_info import CheckpointInfo
from .folder_info import SMALL, folder_info


def info(where: str | Path, *, revision: str | None = None, token: str | None = None) -> CheckpointInfo:
    """Describe the checkpoint at `where`.

    Args:
        where: a saved model's folder, a legacy checkpoint's folder or .zip (its data files may be missing), or the name
            of a repository on the Hub. Only its configuration, vocabulary, card and headers are fetched.
        revision: branch, tag or commit of the repository.
        token: if None, the one from HF_TOKEN or `hf auth login`.

    Raises:
        ValueError: there is no checkpoint, or it has no revisions.
        HubError: the Hub failed or refused.

    Example:
        >>> info("chinese_roformer-v2-char_L-12_H-768_A-12.zip").family
        'RoFormer-V2'
    """
    path = Path(where)
    if revision is not None and path.exists():
        raise ValueError(
            f"{where} is a local path, without revisions like {revision!r}; repositories on the Hub have them"
        )
    if path.is_dir():
        if reason := special_file(path):
            raise CheckpointError(reason)
        sizes = {file.relative_to(path).as_posix(): file.stat().st_size for file in _files(path)}
        return folder_info(path, sizes, str(where) or ".", name_of(path))
    if path.is_file():
        with tempfile.TemporaryDirectory() as folder:
            try:
                sizes = unpack(path, Path(folder), lambda name: name in SMALL or name.endswith(INDEX))
                found = folder_info(Path(folder), sizes, str(where), name_of(path), has_data=False)
            except (ValueError, OSError) as error:
                raise CheckpointError(str(error).replace(folder, str(where))) from None
            found.notes = [note.replace(folder, str(where)) for note in found.notes]
            return found
    if str(where).count("/") != 1:  # a name without owner is more likely a mistyped folder
        raise ValueError(f"{where} does not exist: name a folder, a .zip, or a repository on the Hub (OWNER/NAME)")
    from .hub_info import repository_info

    return repository_info(str(where), revision, token)


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder except hidden ones; also those in subfolders, if it holds a checkpoint."""
    below = folder.rglob("*") if any((folder / name).is_file() for name in CONFIGS) else folder.iterdir()
    return [
        file
        for file in sorted(below)
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
