"""Checkpoint folders: atomic writing, verification by digests, choosing the one to resume from, and averaging."""

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ...files.atomic_file import sync
from ...files.atomic_folder import complete, exchange
from ..errors import TrainingError
from .digests import file_digests

WEIGHTS = "model.safetensors"
MANIFEST = "whole.json"  # name -> size and digest of every other file in the folder. It is written last.
_NAME = re.compile(r"checkpoint-(\d+)")
_logger = logging.getLogger(__name__)


class _FileRecord(NamedTuple):
    """Entry of a file in the manifest."""

    size: int
    sha256: str


def unfinished(path: Path) -> Path:
    """Return the temporary folder that becomes `path`."""
    return path.parent / ".unfinished" / path.name


@contextmanager
def atomic_checkpoint(path: Path, is_main: bool = True, barrier: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """Yield a folder to write into. When the block ends, sync it to disk and rename it to `path` in one step.

    An existing folder at `path` is replaced. All processes of a run write into the same folder; the main process
    (`is_main`) creates and renames it, and `barrier` waits for the other processes.
    """
    folder = unfinished(path)
    if is_main:
        shutil.rmtree(folder.parent, ignore_errors=True)  # left by a killed process
        folder.mkdir(parents=True)
    barrier()
    try:
        yield folder
        barrier()
        if is_main:
            _write_manifest(folder)
            complete(folder)
            if path.exists():
                exchange(folder, path)
            else:
                os.rename(folder, path)
            sync(path.parent)
    finally:
        if is_main:
            shutil.rmtree(folder.parent, ignore_errors=True)
    barrier()


def _write_manifest(folder: Path) -> None:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    manifest = {
        file.relative_to(folder).as_posix(): {"size": file.stat().st_size, "sha256": digest}
        for file, digest in zip(files, file_digests(files), strict=True)
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _read_manifest(folder: Path) -> dict[str, _FileRecord]:
    """Return the manifest of a folder. Raise an OSError, a ValueError or a TypeError if it cannot be read."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if not isinstance(manifest, dict) or not manifest:
        raise ValueError("no files are listed")
    return {name: _FileRecord(**entry) for name, entry in manifest.items()}


def is_complete(folder: Path) -> bool:
    """Return whether every file is there with its size. The contents are not read (see `find_damage`)."""
    try:
        return all((folder / name).stat().st_size == file.size for name, file in _read_manifest(folder).items())
    except (OSError, ValueError, TypeError):
        return False


def find_damage(folder: Path) -> str | None:
    """Return a clause that names a damaged file of the folder, or None if all files are as they were written.

    Read every file, with a progress bar.

    >>> find_damage(Path("run/checkpoint-500"))
    'run/checkpoint-500/optimizer.pt is damaged: its digest differs from the recorded one'
    """
    try:
        manifest = _read_manifest(folder)
    except OSError:
        return f"{folder / MANIFEST} is missing, so the folder may be incomplete"
    except (ValueError, TypeError):
        return f"{folder / MANIFEST} is damaged: it does not list files"
    for name, file in manifest.items():
        path = folder / name
        if not path.is_file():
            return f"{path} is missing"
        if (size := path.stat().st_size) != file.size:
            return f"{path} is damaged: it has {size:,} bytes; expected {file.size:,}"
    try:
        found = file_digests((folder / name for name in manifest), f"verifying {folder.name}")
        for (name, file), digest in zip(manifest.items(), found, strict=True):
            if digest != file.sha256:
                return f"{folder / name} is damaged: its digest differs from the recorded one"
    except OSError as error:
        return f"{error.filename or folder} cannot be read: {error.strerror}"
    return None


def require_undamaged(folder: Path, otherwise: str) -> None:
    """Raise a TrainingError if a file is damaged; `otherwise` says what to do if there is no copy of the folder."""
    if clause := find_damage(folder):
        raise TrainingError(f"{clause}: restore {folder} from a copy, or {otherwise}")


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, complete or not, the latest first."""
    found = {int(name[1]): path for path in folder.glob("checkpoint-*") if (name := _NAME.fullmatch(path.name))}
    return [found[step] for step in sorted(found, reverse=True)]


def last_complete(folder: Path) -> Path | None:
    """Return the latest complete checkpoint, or None."""
    return next(filter(is_complete, checkpoints(folder)), None)


def checkpoint_to_resume(folder: Path) -> Path | None:
    """Return the latest undamaged checkpoint, or None if there is no checkpoint.

    Rename later ones that are damaged, and log a warning for each. If all are damaged, raise a TrainingError instead.
    """
    damaged: dict[Path, str] = {}
    for checkpoint in checkpoints(folder):
        if (found := find_damage(checkpoint)) is None:
            for path, clause in damaged.items():
                kept = _set_aside(path)
                _logger.warning("%s; training resumes from %s; the damaged one is kept as %s", clause, checkpoint, kept)
            return checkpoint
        damaged[checkpoint] = found
    if damaged:
        raise TrainingError(
            f"every checkpoint in {folder} is damaged: {'; '.join(damaged.values())}. Restore one from a copy, or "
            f"remove {folder} to start again"
        )
    return None


def _set_aside(checkpoint: Path) -> Path:
    """Rename a damaged checkpoint, so that it is neither used nor removed."""
    free = (checkpoint.with_name(f"{checkpoint.name}.damaged{n}") for n in ["", *(f"-{i}" for i in range(2, 1000))])
    path = next(path for path in free if not path.exists())
    os.rename(checkpoint, path)
    sync(path.parent)
    return path


def remove_all_but(folder: Path, keep: int) -> None:
    """Remove the checkpoints that are earlier than the latest `keep` complete ones."""
    found = checkpoints(folder)
    if keep:
        whole = [path for path in found if is_complete(path)]
        found = found[found.index(whole[keep - 1]) + 1 :] if len(whole) >= keep else []
    for path in found:
        removed = unfinished(path)  # a process that is killed while it removes leaves no partial checkpoint
        removed.parent.mkdir(exist_ok=True)
        os.rename(path, removed)
        shutil.rmtree(removed.parent, ignore_errors=True)


def average_of_last(folder: str | Path, number: int) -> dict[str, torch.Tensor]:
    """Verify and average the last `number` checkpoints of a run. If it has fewer, log a warning and average these.

    The average is better than a single checkpoint (arXiv:1706.03762, section 6.1).
    """
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
