"""The interface of weights files of every format: tensors by name, checked as they are read."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import not_finite
from .dtypes import DTYPES, FLOATS, is_finite


@dataclass(frozen=True)
class Tensor:
    """The properties of a tensor before it is read: a dtype of dtypes.DTYPES, a shape, and `size` in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int


class Source:
    """Base class of a file of tensors, or of several that belong together; `path` is the one that errors name.

    Tensors have the names of the released checkpoints' variables or, if `has_keys` is set, the keys of their class, and
    then `beside` names what else the file has.
    """

    path: Path
    entries: Mapping[str, Tensor]
    has_keys = False
    beside: Collection[str] = ()

    def in_file_order(self) -> list[Tensor]:
        """Return the entries in file order, which is the fastest to read."""
        return list(self.entries.values())

    def read(self, name: str) -> np.ndarray:
        """Return one tensor in the NumPy dtype of its dtype (bfloat16 as uint16).

        Raises CheckpointError, which names file and tensor, if a checksum is wrong or a value is not finite.
        """
        entry = self.entries[name]
        array = self.load(entry)
        if entry.dtype in FLOATS and not is_finite(array, entry.dtype):
            raise not_finite(self.path, name)
        return array

    def check(self, name: str) -> None:
        """Read one tensor only to check its checksum."""
        self.load(self.entries[name])

    def load(self, entry: Tensor) -> np.ndarray:
        """Return one tensor as `read` does, with any values; formats with checksums compare them."""
        raise NotImplementedError


class WithZeros(Source):
    """A source with one more tensor, not in its files: all its values are zero, as in a layer that a model lacks."""

    def __init__(self, source: Source, name: str, dtype: str, shape: tuple[int, ...]):
        self.path, self.source = source.path, source
        self._zeros = Tensor(name, dtype, shape, math.prod(shape) * DTYPES[dtype].numpy.itemsize)
        self.entries = {**source.entries, name: self._zeros}

    def in_file_order(self) -> list[Tensor]:
        """Return the entries in file order, which is the fastest to read."""
        return [*self.source.in_file_order(), self._zeros]

    def load(self, entry: Tensor) -> np.ndarray:
        """Return one tensor with any values."""
        if entry is self._zeros:
            return np.zeros(entry.shape, DTYPES[entry.dtype].numpy)
        return self.source.load(entry)
