"""Write safetensors files tensor by tensor, so that a file is never in memory as a whole.

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
from huggingface_hub import split_state_dict_into_shards_factory

from .dtypes import DTYPES

INDEX = "model.safetensors.index.json"
MAX_SHARD_SIZE = "5GB"


@dataclass(frozen=True)
class TensorSpec:
    """The name, dtype and shape of one tensor of the file."""

    key: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The size in bytes."""
        return prod(self.shape) * DTYPES[self.dtype].numpy.itemsize


def split_into_shards(specs: Iterable[TensorSpec], limit: int | str) -> dict[str, list[TensorSpec]]:
    """Return file name -> its tensors, each file with at most `limit` bytes (or "5GB") unless one tensor is larger.

    >>> list(split_into_shards([TensorSpec("a", "float32", (8,)), TensorSpec("b", "float32", (8,))], 40))
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    if "-" in str(limit) or not set(str(limit)) & set("123456789"):
        raise ValueError(f"the files' size must be above 0, such as {MAX_SHARD_SIZE}, but is {limit!r}")
    by_key = {spec.key: spec for spec in specs}
    found = split_state_dict_into_shards_factory(
        by_key,
        get_storage_size=lambda spec: spec.size,
        get_storage_id=lambda spec: None,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=limit,
    )
    return {name: [by_key[key] for key in keys] for name, keys in found.filename_to_tensors.items()}


def write_shard_index(path: str | Path, shards: dict[str, list[TensorSpec]]) -> None:
    """Write the JSON file that lists the shard of each tensor, as `save_pretrained` writes it."""
    specs = [spec for shard in shards.values() for spec in shard]
    index = {
        "metadata": {
            "total_parameters": sum(prod(spec.shape) for spec in specs),
            "total_size": sum(spec.size for spec in specs),
        },
        "weight_map": {spec.key: name for name, shard in shards.items() for spec in shard},
    }
    Path(path).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_safetensors(path: str | Path, specs: Iterable[TensorSpec], chunks: Iterable[np.ndarray]) -> None:
    """Write a file of the tensors in `specs`; `chunks` are their values in order, in pieces of any length."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for spec in specs:
        place = {
            "dtype": DTYPES[spec.dtype].safetensors,
            "shape": list(spec.shape),
            "data_offsets": [end, end + spec.size],
        }
        header[spec.key] = place
        end += spec.size
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    # Without a buffer, so that a failed write is raised here and not again when the file is closed.
    with open(path, "wb", buffering=0) as file:
        write_all(file, len(encoded).to_bytes(8, "little") + encoded)
        for chunk in chunks:
            write_all(file, np.ascontiguousarray(chunk).reshape(-1).view(np.uint8))
        if file.tell() != 8 + len(encoded) + end:
            raise ValueError(f"{path}: the chunks given do not add up to {end:,} bytes of tensors")


def write_all(file: io.FileIO, data: bytes | np.ndarray) -> None:
    """Write all of the data; errors name the file, which write errors do not do by themselves."""
    data = memoryview(data)
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, file.name) from None
