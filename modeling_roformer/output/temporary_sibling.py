"""A folder to write into before anything is visible, and the removal of those that a killed process left behind.

Each is locked for as long as its process lives, and the system releases the locks of a dead process. So the next
process that writes to the same path can recognise such a folder, and removes it.
"""

import errno
import os
import re
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextmanager
def temporary_sibling(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """An empty folder next to `path`, removed when the block ends, however it ends (SIGTERM included).

    Only a killed process leaves it behind, as `.<name>.<number>.unfinished`; nothing ever reads it, and the next
    process that writes to `path` removes it, if the file system has locks. `mode` is its permissions.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    _make(path.parent, path, parents=True, exist_ok=True)
    _remove_leftovers(path)
    folder, lock = _name(path), None
    with _terminable():
        try:
            while lock is None:
                _make(folder, path, mode=mode)
                try:
                    lock = lock_folder(folder)
                except BlockingIOError:  # taken for a leftover before it was locked
                    folder = _name(path)
                except OSError:  # a system or file system without locks, where leftovers stay
                    break
            yield folder
        finally:
            _remove(folder)
            if lock is not None:
                os.close(lock)
            for parent in made:
                with suppress(OSError):  # it holds what was written
                    parent.rmdir()


def _make(folder: Path, path: Path, **options) -> None:
    try:
        folder.mkdir(**options)
    except OSError as error:
        there = next(parent for parent in path.parents if parent.exists())
        reason = error.strerror if there.is_dir() else f"{there} is not a folder"
        raise type(error)(f"{path} cannot be created: {reason}") from error


def _name(path: Path) -> Path:
    return path.with_name(f".{_start(path)}.{secrets.token_hex(4)}.unfinished")


def _start(path: Path) -> str:
    return path.name[:50]  # leaves room for the rest in the 255 bytes that a name may have


def _remove_leftovers(path: Path) -> None:
    """Remove what killed processes left next to `path`; what another process has locked is in use."""
    name = re.compile(rf"\.{re.escape(_start(path))}\.[0-9a-f]{{8}}\.unfinished")
    for folder in [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name)]:
        try:
            lock = lock_folder(folder)
        except OSError:
            continue
        _remove(folder)
        os.close(lock)


def lock_folder(folder: Path) -> int:
    """A descriptor that holds the lock of a folder; BlockingIOError if another process has or had it."""
    if fcntl is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except FileNotFoundError:
        raise BlockingIOError from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not folder.is_dir():
            raise BlockingIOError
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:  # an interruption must leave nothing either
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit, so that what is cleaned up for errors is cleaned up for them too."""

    def stop(number, _frame):
        raise SystemExit(128 + number)

    # Only the main thread may do this, and a program that handles these signals itself is left alone.
    handled = []
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        handled = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
