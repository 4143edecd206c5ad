"""Read .zip archives; the many kinds of errors of zipfile for damaged ones become CheckpointError."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import CheckpointError


@contextmanager
def open_zip(path: Path, complaint: str = "is damaged") -> Iterator[zipfile.ZipFile]:
    """Open an archive; an error in the block becomes a CheckpointError with the path, the complaint and the reason."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # the last for an encrypted archive
        raise CheckpointError(f"{path} {complaint}: {error}") from None
