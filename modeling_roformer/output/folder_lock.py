"""Locks of folders: one process writes into a folder at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..locks import lock_folder


@contextmanager
def only_writer(path: str | Path, error: type[Exception]) -> Iterator[None]:
    """Hold the lock of a folder while the block runs. The folder is made if needed, and removed if it stays empty.

    If several processes make the folder at the same moment, it may stay, empty. On a file system without locks, nothing is locked. Raises `error` if another process of this machine holds the lock,
    or if `path` is a file.
    """
    path = Path(path)
    made = [folder for folder in (path.absolute(), *path.absolute().parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise error(f"{path} is not a folder") from None
    try:
        lock = lock_folder(path.resolve())  # a link cannot be locked, its target can
    except BlockingIOError:
        raise error(f"{path} is being written by another process: wait until it has ended") from None
    except PermissionError:
        raise
    except OSError:  # a file system without locks
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
        with suppress(OSError):  # the folder is not empty
            for folder in made:
                folder.rmdir()
