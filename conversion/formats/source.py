"""The interface of weights files of every format: tensors by name, checked as they are read."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import CheckpointError
from .dtypes import DTYPES

CHUNK = 1 << 22  # bytes yielded at a time; a multiple of every item size


@dataclass(frozen=True)
class Tensor:
    """The properties of a tensor before it is read: a dtype of dtypes.DTYPES, a shape, and `size` in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Piece(Tensor):
    """A tensor that is one contiguous piece of a file: `size` bytes from `offset`."""

    offset: int


class Source:
    """Base class of a file of tensors, or of several that belong together; `path` is the one that errors name.

    What is read is checked against the format's checksums, if any; CheckpointError names file and tensor if that fails.
    """

    path: Path
    entries: Mapping[str, Tensor]

    def in_file_order(self) -> list[Tensor]:
        """Return the entries in file order, which is the fastest to read."""
        return list(self.entries.values())

    def chunks(self, name: str) -> Iterator[np.ndarray]:
        """Yield the bytes of one tensor, as uint8 arrays of at most CHUNK bytes, each of whole elements.

        Each array is only valid until the next is requested. The checksum is compared after the last one: discard the
        earlier ones if the iteration ends in CheckpointError.
        """
        entry = self.entries[name]
        yield from self._read_into(entry, np.empty(min(entry.size, CHUNK), np.uint8))

    def read(self, name: str) -> np.ndarray:
        """Return one tensor in the storage of its dtype (bfloat16 as uint16)."""
        entry = self.entries[name]
        array = np.empty(entry.shape, DTYPES[entry.dtype].numpy)
        for _ in self._read_into(entry, array.reshape(-1).view(np.uint8)):
            pass
        return array

    def check(self, name: str) -> None:
        """Read one tensor only to check its checksum."""
        for _ in self.chunks(name):
            pass

    def _read_into(self, entry: Tensor, buffer: np.ndarray) -> Iterator[np.ndarray]:
        """Yield one tensor as `read_pieces` does, and check it."""
        raise NotImplementedError


class WithZeros(Source):
    """A source with one more tensor, which is in no file: all its values are zero, as in a layer that a model lacks."""

    def __init__(self, source: Source, name: str, dtype: str, shape: tuple[int, ...]):
        self.path, self.source = source.path, source
        zeros = Tensor(name, dtype, shape, math.prod(shape) * DTYPES[dtype].numpy.itemsize)
        self.entries, self._zeros = {**source.entries, name: zeros}, zeros

    def in_file_order(self) -> list[Tensor]:
        """Return the entries in file order, which is the fastest to read."""
        return [*self.source.in_file_order(), self._zeros]

    def chunks(self, name: str) -> Iterator[np.ndarray]:
        """Yield the bytes of one tensor as `Source.chunks` does."""
        if name != self._zeros.name:
            yield from self.source.chunks(name)
        elif self._zeros.size:
            yield np.zeros(self._zeros.size, np.uint8)

    def read(self, name: str) -> np.ndarray:
        """Return one tensor in the storage of its dtype (bfloat16 as uint16)."""
        if name != self._zeros.name:
            return self.source.read(name)
        return np.zeros(self._zeros.shape, DTYPES[self._zeros.dtype].numpy)

    def check(self, name: str) -> None:
        """Read one tensor only to check its checksum."""
        if name != self._zeros.name:
            self.source.check(name)


def read_pieces(path: Path, piece: Piece, buffer: np.ndarray) -> Iterator[np.ndarray]:
    """Fill the buffer (uint8) chunk by chunk, starting over whenever it is full; yield each chunk.

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
