"""The checksums by which the Hub identifies a file's content."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

SUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # of git, or SHA-256
PIECE = 1 << 20


@dataclass(frozen=True)
class Sums:
    """`sha256` names a large file; `blob_id` is git's name of a small one, `pointer_id` git's name of a large one.

    Git holds a large file as a pointer, three lines of text (the specification of Git LFS, version 1).
    """

    sha256: str
    blob_id: str
    size: int

    @property
    def pointer_id(self) -> str:
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()
        return hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest()

    def fits(self, name: str) -> bool:
        """Whether this is the content that the Hub calls `name`, by any of the three."""
        return name in (self.sha256, self.blob_id, self.pointer_id)


def sums_of(
    file: BinaryIO, copy: BinaryIO | None = None, advance: Callable[[int], object] = lambda count: None
) -> Sums:
    """The checksums of a file, read once, piece by piece.

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
