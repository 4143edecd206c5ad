"""The checksums by which the Hub identifies a file's content."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

SUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # git's SHA-1, or SHA-256
PIECE = 1 << 20


@dataclass(frozen=True)
class Sums:
    """The checksums of one content: `sha256` names a large file on the Hub, `blob_id` (git's name) a small one."""

    sha256: str
    blob_id: str
    size: int

    @property
    def pointer_id(self) -> str:
        """git's name of the pointer that stands for a large file (the specification of Git LFS, version 1)."""
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()
        return hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest()

    def fits(self, name: str | None) -> bool:
        """Return whether the Hub's name of a content is one of the three."""
        return name in (self.sha256, self.blob_id, self.pointer_id)


def sums_of(
    file: BinaryIO, copy: BinaryIO | None = None, advance: Callable[[int], object] = lambda count: None
) -> Sums:
    """Return the checksums of a file, which is read once, piece by piece.

    Args:
        file: open for reading, in binary mode.
        copy: receives the content too.
        advance: called with the number of bytes of each piece.

    >>> with open("vocab.txt", "rb") as file:
    ...     sums_of(file).blob_id  # what `git hash-object vocab.txt` prints
    """
    size = file.seek(0, 2)
    file.seek(0)
    sha256, blob, read = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size), 0
    while piece := file.read(PIECE):
        sha256.update(piece)
        blob.update(piece)
        if copy is not None:
            copy.write(piece)
        read += len(piece)
        advance(len(piece))
    return Sums(sha256.hexdigest(), blob.hexdigest(), read)
