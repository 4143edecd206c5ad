"""A folder that appears finished or not at all."""

import json
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .exchange import exchange


@contextmanager
def output_folder(path: str | Path, force: bool = False) -> Iterator[Path]:
    """A folder to write into, which becomes `path` when the block ends, and is removed when anything stops it.

    It is made beside `path`, so that one rename puts it in place, after everything in it has reached the disk.
    With `force` it takes the place of a model that is there, which is whole until then and is removed after.
    Raises FileExistsError where `path` exists and is neither an empty folder nor, with `force`, a saved model.

    >>> with output_folder("converted") as folder:
    ...     (folder / "config.json").write_text("{}")
    """
    path = Path(path).resolve()
    replaces = _is_replaced(path, force)
    with temporary_sibling(path) as folder:
        try:
            yield folder
            for file in folder.rglob("*"):
                _sync(file)
            _sync(folder)
            if replaces and path.exists():
                exchange(folder, path)
            else:
                os.replace(folder, path)
        except OSError as error:
            if isinstance(error.filename, (str, Path)):
                error.filename = str(error.filename).replace(str(folder), str(path))
            raise
        _sync(path.parent)


def _is_replaced(path: Path, force: bool) -> bool:
    """Whether there is a folder that the new one replaces."""
    if path.is_dir() and not os.path.ismount(path):
        if not any(path.iterdir()):
            return False
        if not force:
            raise FileExistsError(f"{path} is not empty: name a new folder, or replace a model with --force")
        if not is_saved_model(path):
            raise FileExistsError(f"{path} is not replaced, because it is no saved model: name a new folder")
        return True
    if path.exists():
        kind = "a mount point: name a folder inside it" if path.is_dir() else "not a folder"
        raise FileExistsError(f"{path} is {kind}")
    return False


def is_saved_model(path: Path) -> bool:
    """Whether a folder is what `save_pretrained` or `export_tf` writes, and no clone of a repository, which holds more."""
    if (path / ".git").exists():
        return False
    name = next((name for name in ("config.json", "bert_config.json") if (path / name).is_file()), "")
    try:
        config = json.loads((path / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(config, dict) or (name == "bert_config.json" and "exported_from" not in config):
        return False  # an original, of which there may be no other copy
    return isinstance(config.get("model_type"), str)


@contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """An empty folder beside `path`, removed when the block ends, however it ends (SIGTERM included).

    Only a process that is killed leaves it, as `.<name>.<number>.unfinished`; nothing ever reads it, and it can be removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.with_name(f".{path.name}.{secrets.token_hex(4)}.unfinished")
    with _terminable():
        try:
            folder.mkdir()
            yield folder
        finally:
            _remove(folder)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:  # an interruption, which is to leave nothing either
        shutil.rmtree(folder, ignore_errors=True)
        raise


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
