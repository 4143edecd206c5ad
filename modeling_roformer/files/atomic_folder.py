"""Folders that appear complete or not at all: they are written beside their path and renamed.

A temporary folder is locked while its process lives, so the next process that writes to the same path can tell that a
killed process left it behind, and removes it.
"""

import ctypes
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE

from .known_files import NAMED, unknown_files
from .lock import lock_folder, make_and_lock

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux's renameat2: paths are relative to the current folder


@contextmanager
def output_folder(path: str | Path, force: bool | None = None) -> Iterator[Path]:
    """Yield a folder to write into, which becomes `path` when the block ends, and is removed if the block fails.

    With `force` it replaces an existing model, which stays intact until then. None is for a command without --force.
    It does not replace a folder with files that no command of this package writes, unless the new folder has them too.

    Raises:
        FileExistsError: `path` is the current folder, or neither an empty folder nor, with `force`, a saved model.
        NotADirectoryError: `path` is a file.
    """
    path = Path(path).resolve()
    require_replaceable(path, force)
    with temporary_sibling(path) as folder:
        try:
            yield folder
        except OSError as error:  # the user does not know the temporary folder, only `path`
            if isinstance(error.filename, str):
                error.filename = error.filename.replace(str(folder), str(path))
            elif error.errno in _NO_SPACE:  # the system does not name the file
                error.filename = str(path)
            raise
        complete(folder)
        if require_replaceable(path, force):  # another process may have written something in the meantime
            require_nothing_lost(path, folder)
            exchange(folder, path)
        else:
            os.replace(folder, path)
        sync(path.parent)


def require_replaceable(path: Path, force: bool | None) -> bool:
    """Return whether there is a folder that a new one replaces. Raise FileExistsError if it must not be replaced."""
    if not path.exists():
        return False
    if os.path.ismount(path):
        raise FileExistsError(f"{path} is a mount point: name a folder inside it")
    if path.samefile(os.curdir):  # a shell in it would stay in the old one, and not see the new one
        raise FileExistsError(f"{path} is the current folder, which cannot be replaced: name another folder")
    if not any(path.iterdir()):
        return False
    if not force:
        advice = "" if force is None else ", or replace a model with --force"
        raise FileExistsError(f"{path} is not empty: name a new folder{advice}")
    if not is_saved_model(path):
        raise FileExistsError(f"{path} is not a saved model, or is a git repository: name a new folder")
    return True


def overlap(first: Path, second: Path) -> bool:
    """Return whether two paths are one existing folder, or one lies in the other, by whatever names."""
    return _is_in(first, second) or _is_in(second, first)


def _is_in(inner: Path, outer: Path) -> bool:
    inner = inner.resolve()
    return outer.exists() and any(path.exists() and path.samefile(outer) for path in (inner, *inner.parents))


def require_nothing_lost(path: Path, new: Path | None = None) -> None:
    """Raise FileExistsError if a model folder has files that would be lost: see `unknown_files`."""
    if names := unknown_files(path, new):
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        raise FileExistsError(
            f"{path} has files that would be deleted: {', '.join(names[:NAMED])}{more}. Move them, or name a new folder"
        )


def is_saved_model(path: Path) -> bool:
    """Return whether `save_pretrained` or `export_tf` wrote a folder, and it is not the clone of a git repository."""
    if (path / ".git").exists():
        return False
    name = next((name for name in ("config.json", "bert_config.json") if (path / name).is_file()), "")
    try:
        config = json.loads((path / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(config, dict) or (name == "bert_config.json" and "exported_from" not in config):
        return False  # an original checkpoint, perhaps the only copy
    return isinstance(config.get("model_type"), str)


def complete(folder: Path) -> None:
    """Give a folder's files the permissions of new files (safetensors' are for their owner alone), and sync all."""
    (probe := folder / ".mode").touch()  # to read the umask, a process must change it, in its other threads too
    mode = S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in [*folder.rglob("*"), folder]:
        if path.is_file() and not path.is_symlink() and S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)
        sync(path)


def sync(path: Path) -> None:
    """Sync a file, or a folder's list of files, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(new: Path, old: Path) -> None:
    """Put the folder `new` at the path of `old`, in one step if the system can; `old` is then at the path of `new`.

    Otherwise `old` is renamed to `<new>.old` first, and a process that is killed between the steps leaves both whole.
    """
    if _exchange_in_one_step(new, old):
        return
    aside = new.with_name(f"{new.name}.old")
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except BaseException:
        os.rename(aside, old)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange_in_one_step(new: Path, old: Path) -> bool:
    """Call Linux's renameat2; return False if it fails, as where the system or the file system does not have it."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    return renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE) == 0


@contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """Yield an empty folder next to `path`, and remove it at the end, with those that killed processes left there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start = f".{path.name[:50]}."  # a name has at most 255 bytes
    pattern = re.compile(rf"{re.escape(start)}[0-9a-f]{{8}}\.unfinished")
    for leftover in [entry for entry in path.parent.iterdir() if pattern.fullmatch(entry.name)]:
        with suppress(OSError):  # it is locked, so in use, or no folder
            lock = lock_folder(leftover)
            shutil.rmtree(leftover, ignore_errors=True)
            os.close(lock)

    def make() -> Path:
        folder = path.with_name(f"{start}{secrets.token_hex(4)}.unfinished")
        folder.mkdir()
        return folder

    folder, lock = make_and_lock(make)  # another process may take it for a leftover before it is locked
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)
