"""Read .zip archives; the many kinds of errors of zipfile for damaged ones become CheckpointError."""

import errno
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import CheckpointError

_DAMAGE = (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, OverflowError, struct.error, zlib.error)


def is_zip(path: Path) -> bool:
    """Return whether a file looks like a .zip, damaged or not."""
    try:
        return zipfile.is_zipfile(path)
    except _DAMAGE:  # it ends like a .zip, but with impossible offsets
        return True


@contextmanager
def open_zip(path: Path, complaint: str = "is damaged") -> Iterator[zipfile.ZipFile]:
    """Open an archive; an error in the block becomes a CheckpointError with the path, the complaint and the reason."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (*_DAMAGE, OSError) as error:
        is_damage = not isinstance(error, OSError) or error.errno == errno.EINVAL  # a seek before the file's start
        if isinstance(error, CheckpointError) or not is_damage:
            raise
        raise CheckpointError(f"{path} {complaint}: {error}") from None
