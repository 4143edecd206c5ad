"""Read one contiguous piece of a file without holding all of it in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from ..errors import CheckpointError

CHUNK = 1 << 22  # bytes yielded at a time; a multiple of every item size


class Piece(Protocol):
    """Where a tensor is: `size` bytes from `offset`."""

    name: str
    offset: int
    size: int


def read_pieces(path: Path, piece: Piece, buffer: np.ndarray) -> Iterator[np.ndarray]:
    """Fill the buffer (uint8) chunk by chunk, starting over whenever it is full; yields each chunk.

    Raises CheckpointError if the file ends before the piece does.
    """
    done = 0
    with open(path, "rb", buffering=0) as file:
        file.seek(piece.offset)
        while done < piece.size:
            at = done % len(buffer)
            chunk = buffer[at : at + min(CHUNK, piece.size - done, len(buffer) - at)]
            filled = 0
            while filled < len(chunk):
                count = file.readinto(chunk[filled:])
                if not count:
                    raise CheckpointError(f"{path} is truncated in {piece.name}")
                filled += count
            done += len(chunk)
            yield chunk
