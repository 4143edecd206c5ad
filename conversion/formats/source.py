"""What weights are read from, whatever the format of the file: tensors by name, checked as they are read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np


class Tensor(Protocol):
    """What is known of a tensor before it is read: a dtype of dtypes.STORAGE, a shape, and `size` in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int


class Source(Protocol):
    """A file of tensors, or several that belong together; `path` is the one that errors name.

    What is read is checked against the sums that the format has; CheckpointError names file and tensor where it fails.
    """

    path: Path
    entries: Mapping[str, Tensor]

    def in_file_order(self) -> list[Tensor]:
        """The entries as they lie in the files, which is the fastest order to read them in."""

    def chunks(self, name: str) -> Iterator[np.ndarray]:
        """The bytes of one tensor in pieces, as uint8 arrays of whole numbers, each valid until the next."""

    def read(self, name: str) -> np.ndarray:
        """One tensor in the storage of its dtype (bfloat16 as uint16)."""

    def check(self, name: str) -> None:
        """Read one tensor for nothing but its sum."""
