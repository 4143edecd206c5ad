"""A folder that appears complete or not at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .exchange import exchange
from .temporary_sibling import temporary_sibling


@contextmanager
def output_folder(path: str | Path, force: bool = False) -> Iterator[Path]:
    """A folder to write into, which becomes `path` when the block ends, and is removed if anything stops it.

    It is made next to `path`, so that one rename puts it in place, after everything in it has reached the disk.
    With `force` it replaces an existing model, which stays intact until then and is removed afterwards.
    Raises FileExistsError if `path` exists and is neither an empty folder nor, with `force`, a saved model, or if it is
    the current folder; ValueError if its name is one that safetensors and tokenizers cannot open.

    >>> with output_folder("converted") as folder:
    ...     (folder / "config.json").write_text("{}")
    """
    path = Path(path).resolve()
    _check_name(path)
    _is_replaced(path, force)
    with temporary_sibling(path) as folder:
        try:
            yield folder
            for file in folder.rglob("*"):
                sync(file)
            sync(folder)
            _put_in_place(folder, path, force)
        except OSError as error:
            if isinstance(error.filename, (str, Path)):
                error.filename = str(error.filename).replace(str(folder), str(path))
            raise
        sync(path.parent)


def _check_name(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{str(path)!a} is not valid UTF-8: name another folder, or set a UTF-8 locale") from None


def _put_in_place(folder: Path, path: Path, force: bool) -> None:
    """Rename `folder` to `path`, to which another process may have written something in the meantime."""
    try:
        if not _is_replaced(path, force):
            os.replace(folder, path)
            return
    except OSError:
        if not _is_replaced(path, force):  # raises an error that says what is there now
            raise
    exchange(folder, path)


def _is_replaced(path: Path, force: bool) -> bool:
    """Whether there is a folder that the new one replaces."""
    if path.is_dir() and not os.path.ismount(path):
        if path.samefile(os.curdir):  # a shell in it would stay in the old one, and not see the new one
            raise FileExistsError(f"{path} is the current folder, which cannot be replaced: name another folder")
        if not any(path.iterdir()):
            return False
        if not force:
            raise FileExistsError(f"{path} is not empty: name a new folder, or replace a model with --force")
        if not is_saved_model(path):
            raise FileExistsError(f"{path} is not replaced, because it is not a saved model: name a new folder")
        return True
    if path.exists():
        kind = "a mount point: name a folder inside it" if path.is_dir() else "not a folder"
        raise FileExistsError(f"{path} is {kind}")
    return False


def is_saved_model(path: Path) -> bool:
    """Whether a folder is what `save_pretrained` or `export_tf` writes, and not a clone of a repository with more."""
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


def sync(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
