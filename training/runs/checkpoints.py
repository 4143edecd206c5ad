"""Checkpoints that are whole or not there, and from which one a run resumes."""

import json
import logging
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from transformers.trainer_pt_utils import safe_globals

from ...output.atomic_folder import exchange, sync
from ...output.console import sentence_of
from ..errors import TrainingError
from .digests import digests

MANIFEST = "whole.json"  # name -> size and digest of every other file in the folder; written last
_NAME = re.compile(r"checkpoint-(\d+)")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Written:
    """What a file was when it was written. Manifests of older versions have its size alone, where `sha256` is None."""

    size: int
    sha256: str | None = None


def unfinished(path: Path) -> Path:
    """Where what becomes `path` is written."""
    return path.parent / ".unfinished" / path.name


@contextmanager
def whole_folder(path: Path, is_main: bool = True, barrier: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """A folder to write into, which becomes `path` in one step when the block has ended and everything is on the disk.

    What stands at `path` is replaced. All processes of a run write into the same folder; the main one makes and renames it.

    Args:
        path: what it becomes; until then it is `unfinished(path)`.
        is_main: whether this is the main process.
        barrier: waits for the others.
    """
    folder = unfinished(path)
    if is_main:
        shutil.rmtree(folder.parent, ignore_errors=True)  # what a killed process left
        folder.mkdir(parents=True)
    barrier()
    try:
        yield folder
        barrier()
        if is_main:
            _write_manifest(folder)
            for file in [*folder.rglob("*"), folder]:
                sync(file)
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
        for file, digest in zip(files, digests(files), strict=True)
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _read_manifest(folder: Path) -> dict[str, _Written]:
    """Raises an OSError or a ValueError where there is none that can be read."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if not isinstance(manifest, dict) or not manifest:
        raise ValueError("no files are listed")
    try:
        return {
            name: _Written(**entry) if isinstance(entry, dict) else _Written(int(entry))
            for name, entry in manifest.items()
        }
    except TypeError as error:
        raise ValueError(str(error)) from None


def is_whole(folder: Path) -> bool:
    """Whether every file that was written is there, in its size; what the files hold is not read (see `damage`)."""
    try:
        return all((folder / name).stat().st_size == file.size for name, file in _read_manifest(folder).items())
    except (OSError, ValueError):
        return False


def damage(folder: Path) -> str | None:
    """Return a clause that names a file of the folder which is not as it was written, or None where all are.

    Every file is read, with a progress bar. A folder of an older version has no digests: its files are then read as far as
    their formats have sums and structure.

    >>> damage(Path("run/checkpoint-500"))
    'run/checkpoint-500/optimizer.pt is damaged: it does not hold the bytes that were written'
    """
    try:
        manifest = _read_manifest(folder)
    except OSError:
        return f"{folder / MANIFEST} is missing, so the folder may be incomplete"
    except ValueError:
        return f"{folder / MANIFEST} is damaged: it is not a list of files"
    for name, file in manifest.items():
        path = folder / name
        if not path.is_file():
            return f"{path} is missing"
        if (size := path.stat().st_size) != file.size:
            return f"{path} is damaged: it has {size:,} bytes, but {file.size:,} were written"
    known = [name for name, file in manifest.items() if file.sha256 is not None]
    try:
        found = digests((folder / name for name in known), f"verifying {folder.name}")
        for name, digest in zip(known, found, strict=True):
            if digest != manifest[name].sha256:
                return f"{folder / name} is damaged: it does not hold the bytes that were written"
    except OSError as error:
        return f"{error.filename or folder} cannot be read: {error.strerror}"
    unknown = (folder / name for name in manifest if name not in known)
    return next((f"{path} is damaged: {fault}" for path in unknown if (fault := _fault(path))), None)


def _fault(path: Path) -> str | None:
    """What is wrong with a file whose digest was not written down, as far as its format tells."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt"):  # reads the header, and compares it with the size
                pass
        elif path.suffix in (".pt", ".pth"):  # which torch.save writes, with a sum of each part
            with zipfile.ZipFile(path) as archive:
                if archive.testzip():
                    return "the sums in it do not agree"
            with safe_globals():
                torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        elif path.suffix == ".json":
            content = json.loads(path.read_text(encoding="utf-8"))
            if path.name == "trainer_state.json" and content["global_step"] != int(path.parent.name.split("-")[-1]):
                return "it is of another step"
    except Exception as error:  # each library has its own
        return f"it cannot be read ({sentence_of(error)})"
    return None


def require_undamaged(folder: Path, otherwise: str) -> None:
    """Raise a TrainingError where `damage` finds something; `otherwise` says what to do if there is no copy of the folder."""
    if clause := damage(folder):
        raise TrainingError(f"{clause}: restore {folder} from a copy, or {otherwise}")


def checkpoints(folder: Path) -> list[Path]:
    """Those of a run, whole or not, the latest first."""
    found = {int(name[1]): path for path in folder.glob("checkpoint-*") if (name := _NAME.fullmatch(path.name))}
    return [found[step] for step in sorted(found, reverse=True)]


def last_whole(folder: Path) -> Path | None:
    """The latest checkpoint that is whole by `is_whole`."""
    return next(filter(is_whole, checkpoints(folder)), None)


def checkpoint_to_resume(folder: Path) -> Path | None:
    """Return the latest checkpoint whose files are all as they were written, or None where there is no checkpoint.

    Damaged ones that are later are said in a warning, and kept beside it under another name.

    Raises a TrainingError where there are checkpoints, but all are damaged; nothing is renamed then.
    """
    damaged: dict[Path, str] = {}
    for checkpoint in checkpoints(folder):
        if (found := damage(checkpoint)) is None:
            for path, clause in damaged.items():
                kept = _set_aside(path)
                _logger.warning(
                    "%s; training resumes from %s, and what is left is kept in %s", clause, checkpoint, kept
                )
            return checkpoint
        damaged[checkpoint] = found
    if damaged:
        raise TrainingError(
            f"no checkpoint in {folder} can be resumed: {'; '.join(damaged.values())}. Restore one of them from a copy, or "
            f"remove {folder} to train it again from the start"
        )
    return None


def _set_aside(checkpoint: Path) -> Path:
    """Rename a checkpoint, so that it neither counts as one nor is removed."""
    free = (checkpoint.with_name(f"{checkpoint.name}.damaged{n}") for n in ["", *(f"-{i}" for i in range(2, 1000))])
    path = next(path for path in free if not path.exists())
    os.rename(checkpoint, path)
    sync(path.parent)
    return path


def remove_all_but(folder: Path, keep: int) -> None:
    """Remove the checkpoints that are earlier than the latest `keep` whole ones."""
    found = checkpoints(folder)
    if keep:
        whole = [path for path in found if is_whole(path)]
        found = found[found.index(whole[keep - 1]) + 1 :] if len(whole) >= keep else []
    for path in found:
        removed = unfinished(path)  # so that a process that is killed while it removes leaves no half of a checkpoint
        removed.parent.mkdir(exist_ok=True)
        os.rename(path, removed)
        shutil.rmtree(removed.parent, ignore_errors=True)
