"""Files that appear complete or not at all: they are written beside their path and renamed."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..tokenization.vocabulary import write_whole as write_whole  # used from here, and published with the tokenizer


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a path to write a file to; it is synced and renamed to `path` at the end, or removed if the block fails."""
    path = Path(path).absolute()
    new = temporary_name(path)
    try:
        yield new
        sync(new)
        os.replace(new, path)
    except BaseException:
        with suppress(FileNotFoundError):
            new.unlink()
        raise


def temporary_name(path: Path) -> Path:
    """Return a new name beside `path`, for a file or folder that is renamed to it later."""
    return path.with_name(f".{path.name[:50]}.{secrets.token_hex(4)}.unfinished")  # a name has at most 255 bytes


def leftovers(path: Path) -> list[Path]:
    """Return what killed processes left of `path` under temporary names, and what is being written."""
    path = path.absolute()
    name = re.compile(rf"\.{re.escape(path.name[:50])}\.[0-9a-f]{{8}}\.unfinished")
    return [entry for entry in path.parent.iterdir() if name.fullmatch(entry.name)]


def sync(path: Path) -> None:
    """Sync a file, or a folder's list of files, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
