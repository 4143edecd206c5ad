"""What weights are read from, whatever the file format: tensors by name, checked as they are read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np


class Tensor(Protocol):
    """What is known about a tensor before it is read: a dtype of dtypes.STORAGE, a shape, and `size` in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int


class Source(Protocol):
    """A file of tensors, or several that belong together; `path` is the one that errors name.

    What is read is checked against the format's checksums, if any; CheckpointError names file and tensor if that fails.
    """

    path: Path
    entries: Mapping[str, Tensor]

    def in_file_order(self) -> list[Tensor]:
        """The entries in file order, which is the fastest to read."""

    def chunks(self, name: str) -> Iterator[np.ndarray]:
        """The bytes of one tensor in pieces, as uint8 arrays of whole elements, each valid until the next."""

    def read(self, name: str) -> np.ndarray:
        """One tensor in the storage of its dtype (bfloat16 as uint16)."""

    def check(self, name: str) -> None:
        """Read one tensor only to check its checksum."""
