"""Read .zip archives; the many kinds of errors that zipfile raises for damaged ones become one sentence."""

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
    """Whether a file looks like a .zip, damaged or not."""
    try:
        return zipfile.is_zipfile(path)
    except _DAMAGE:  # it ends like a .zip, but with impossible offsets
        return True


@contextmanager
def open_zip(path: Path, complaint: str = "is damaged") -> Iterator[zipfile.ZipFile]:
    """The archive, for a block that reads it. Raises CheckpointError: the path, the complaint, and what is wrong."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except CheckpointError:
        raise
    except _DAMAGE as error:
        raise CheckpointError(f"{path} {complaint}: {error}") from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # seeking before the file's start is EINVAL; any other error is not damage
            raise
        raise CheckpointError(f"{path} {complaint}: {error}") from None


def unpack_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    """Write one file of an archive, in pieces; zipfile ends at the size that the archive announces for it.

    Raises CheckpointError where it is packed by another method than the usual one: of those, a few bytes can unpack to
    gigabytes in one piece.
    """
    if member.compress_type not in _METHODS:
        method = zipfile.compressor_names.get(member.compress_type, member.compress_type)
        raise CheckpointError(
            f"{archive.filename} holds {member.filename}, packed by the method {method}, and only deflate, the usual one, is "
            "read: pack it again"
        )
    with archive.open(member) as source, open(target, "wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
