"""Checkpoints that are whole or not there, and which one to go on from."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..output.output_folder import sync

MANIFEST = "whole.json"  # name -> size of every other file in the folder; written last
_NAME = re.compile(r"checkpoint-(\d+)")


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
            files = [file for file in folder.rglob("*") if file.is_file()]
            sizes = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files}
            (folder / MANIFEST).write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")
            for file in [*folder.rglob("*"), folder]:
                sync(file)
            shutil.rmtree(path, ignore_errors=True)
            os.rename(folder, path)
            sync(path.parent)
    finally:
        if is_main:
            shutil.rmtree(folder.parent, ignore_errors=True)
    barrier()


def is_whole(folder: Path) -> bool:
    """Whether every file is there that was written, in its size."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def checkpoints(folder: Path) -> list[Path]:
    """Those of a stage, whole or not, the latest first."""
    found = {int(name[1]): path for path in folder.glob("checkpoint-*") if (name := _NAME.fullmatch(path.name))}
    return [found[step] for step in sorted(found, reverse=True)]


def last_whole(folder: Path) -> Path | None:
    """The latest checkpoint that is whole; half-written ones are passed over."""
    return next(filter(is_whole, checkpoints(folder)), None)


def remove_all_but(folder: Path, keep: int) -> None:
    """Remove checkpoints, but for the latest `keep` that are whole."""
    whole = [path for path in checkpoints(folder) if is_whole(path)]
    for path in checkpoints(folder):
        if path not in whole[:keep]:
            shutil.rmtree(path, ignore_errors=True)
