"""Swap two folders."""

import ctypes
import errno
import os
import shutil
from pathlib import Path

_AT_FDCWD = -100  # paths are relative to the current folder, as everywhere
_RENAME_EXCHANGE = 2
_NOT_HERE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def exchange(new: Path, old: Path) -> None:
    """Put the folder `new` at the path of the folder `old`, and vice versa.

    In one step if the system can do it (Linux, most file systems). Elsewhere `old` goes aside first and comes back if
    anything fails; a process that is killed between the two steps leaves it whole at `<new>.old`, and `new` as it was.
    """
    if _exchange_in_one_step(new, old):
        return
    aside = new.with_name(f"{new.name}.old")
    try:
        os.rename(old, aside)
        os.rename(new, old)
        os.rename(aside, new)
    finally:
        if aside.exists() and not old.exists():
            os.rename(aside, old)
        elif aside.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _exchange_in_one_step(new: Path, old: Path) -> bool:
    """Linux's renameat2; False if the system or the file system does not have it."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    if renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_HERE:
        return False
    raise OSError(number, os.strerror(number), str(old))
