"""A folder that appears finished or not at all."""

import os
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def output_folder(path: str | Path) -> Iterator[Path]:
    """A folder to write into, which becomes `path` when the block ends, and is removed when anything stops it.

    It is made beside `path`, so that one rename puts it in place, after everything in it has reached the disk.
    Raises FileExistsError where `path` exists and is not an empty folder.

    >>> with output_folder("converted") as folder:
    ...     (folder / "config.json").write_text("{}")
    """
    path = Path(path).resolve()
    if path.is_dir() and not os.path.ismount(path):
        if any(path.iterdir()):
            raise FileExistsError(f"{path} is not empty: name a new folder, or empty it")
    elif path.exists():
        kind = "a mount point: name a folder inside it" if path.is_dir() else "not a folder"
        raise FileExistsError(f"{path} is {kind}")
    with temporary_sibling(path) as folder:
        try:
            yield folder
            for file in folder.rglob("*"):
                _sync(file)
            _sync(folder)
            os.replace(folder, path)
        except OSError as error:
            if isinstance(error.filename, (str, Path)):
                error.filename = str(error.filename).replace(str(folder), str(path))
            raise
        _sync(path.parent)


@contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """An empty folder beside `path`, removed when the block ends, however it ends (SIGTERM included)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.with_name(f".{path.name}.{secrets.token_hex(4)}.unfinished")
    with _terminable():
        try:
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
