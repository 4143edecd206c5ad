"""Read .zip archives; what zipfile raises of damaged ones, in errors of many kinds, becomes one sentence."""

import errno
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import CheckpointError

try:
    from lzma import LZMAError
except ImportError:  # a Python that was built without it, where zipfile unpacks no such member either
    LZMAError = zlib.error

_DAMAGE = (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, OverflowError, struct.error, zlib.error, LZMAError)


def is_zip(path: Path) -> bool:
    """Whether a file looks like a .zip, damaged or not."""
    try:
        return zipfile.is_zipfile(path)
    except _DAMAGE:  # it ends as a .zip does, but with places that cannot be
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
        # bz2's errors have no number, and a place before the file's start is an invalid argument; others are no damage.
        if error.errno not in (None, errno.EINVAL):
            raise
        raise CheckpointError(f"{path} {complaint}: {error}") from None
