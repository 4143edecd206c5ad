"""Read .zip archives; the many kinds of errors of zipfile for damaged ones become CheckpointError."""

import errno
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import CheckpointError

_DAMAGE = (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, OverflowError, struct.error, zlib.error)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


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


def unpack_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    """Write one file of an archive, in pieces; zipfile stops at the size that the archive states for it.

    Raises CheckpointError for other methods than deflate, with which a few bytes can unpack to gigabytes in one piece.
    """
    if member.compress_type not in _METHODS:
        method = zipfile.compressor_names.get(member.compress_type, member.compress_type)
        raise CheckpointError(
            f"{archive.filename} holds {member.filename} packed by {method}; only deflate is supported"
        )
    with archive.open(member) as source, open(target, "wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
