"""A folder into which one process writes at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .temporary_sibling import lock_folder


@contextmanager
def only_writer(path: str | Path) -> Iterator[None]:
    """Hold the lock of a folder while the block runs. It is made if needed, and removed if it stays empty.

    The system releases the lock of a process that dies. On a file system without locks, nothing is held.

    Raises:
        BlockingIOError: another process of this machine holds it.
        FileExistsError: there is a file of that name.
    """
    path = Path(path)
    made = [folder for folder in (path.absolute(), *path.absolute().parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise FileExistsError(f"{path} is not a folder") from None
    try:
        lock = lock_folder(path.resolve())  # of what a link points to
    except BlockingIOError:
        raise BlockingIOError(f"{path} is being written by another process: wait until it has ended") from None
    except PermissionError:
        raise
    except OSError:  # a file system without locks
        lock = None
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
        with suppress(OSError):  # it holds what was written
            for folder in made:
                folder.rmdir()
