"""Locks of folders. The system releases those of a process that has ended, even if it was killed."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


def lock_folder(folder: Path) -> int:
    """Return a descriptor that holds the lock of a folder until it is closed.

    Raises BlockingIOError if another process holds the lock, another OSError if there are no locks or no such folder.
    """
    if fcntl is None:
        raise OSError("this system has no locks of folders")
    descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def make_and_lock(make: Callable[[], Path], error: Exception | None = None) -> tuple[Path, int | None]:
    """Make a folder and lock it; return it with its lock, which is None on a file system without locks.

    `make` returns the folder. It is called again if another process removed the folder before it was locked. If another
    process holds the lock, `error` is raised; if that is None, `make` is called again.
    """
    while True:
        folder = make()
        try:
            lock = lock_folder(folder)
        except BlockingIOError:
            if error is not None:
                raise error from None
            continue
        except FileNotFoundError:
            continue
        except OSError:  # a file system without locks
            return folder, None
        if _is_at(folder, lock):
            return folder, lock
        os.close(lock)


@contextmanager
def only_writer(path: str | Path, error: type[Exception]) -> Iterator[None]:
    """Hold the lock of a folder, if the file system has locks. The folder is made, and removed if it stays empty.

    Raises `error` if another process of this machine holds the lock, FileExistsError if `path` is a file.
    """
    path = Path(path)
    is_new = not path.exists()

    def make() -> Path:
        path.mkdir(parents=True, exist_ok=True)
        return path.resolve()  # a link cannot be locked, its target can

    _, lock = make_and_lock(make, error(f"{path} is being written by another process: wait until it has ended"))
    try:
        yield
    finally:
        if is_new:
            with suppress(OSError):  # the folder is not empty
                path.rmdir()
        if lock is not None:
            os.close(lock)


def _is_at(folder: Path, descriptor: int) -> bool:
    """Return whether an open folder is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False
