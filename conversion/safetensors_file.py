"""Writing a safetensors file tensor by tensor, so that it never lies in memory as a whole.

The format: the header's length (8 bytes, little-endian), the header (JSON, padded with spaces to a multiple of 8), then
the tensors' bytes, one after the other: https://github.com/huggingface/safetensors#format
"""

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from .dtypes import STORAGE

_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}


@dataclass(frozen=True)
class TensorSpec:
    """Name, dtype and shape of one tensor of the file."""

    key: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes it takes."""
        return prod(self.shape) * STORAGE[self.dtype].itemsize


def write_safetensors(path: str | Path, specs: Iterable[TensorSpec], chunks: Iterable[np.ndarray]) -> None:
    """Write a file of the tensors in `specs`; `chunks` are their numbers in order, in pieces of any length.

    >>> spec = TensorSpec("weight", "float32", (2, 3))
    >>> write_safetensors("model.safetensors", [spec], [np.zeros(2, "f4"), np.ones(4, "f4")])
    """
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for spec in specs:
        header[spec.key] = {
            "dtype": _NAMES[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": [end, end + spec.size],
        }
        end += spec.size
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    # Without a buffer, so that a failed write is raised here and not again when the file is closed.
    with open(path, "wb", buffering=0) as file:
        _write(file, len(encoded).to_bytes(8, "little") + encoded)
        for chunk in chunks:
            _write(file, np.ascontiguousarray(chunk).reshape(-1).view(np.uint8))
        if file.tell() != 8 + len(encoded) + end:
            raise ValueError(f"{path}: the numbers given are not those of {end:,} bytes of tensors")


def _write(file: io.FileIO, data: bytes | np.ndarray) -> None:
    """Write all of it; an error names the file, which errors of writing do not do by themselves."""
    data = memoryview(data)
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, file.name) from None
