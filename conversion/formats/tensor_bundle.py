"""TensorBundle, the format of TensorFlow's checkpoints (version 2), read without TensorFlow.

A checkpoint with the prefix `model.ckpt` is a table `model.ckpt.index` (see sstable.py) and shards
`model.ckpt.data-00000-of-00001`, …, the tensors' bytes one after the other. The table maps "" to a BundleHeaderProto
and each variable's name to a BundleEntryProto (tensorflow/core/protobuf/tensor_bundle.proto), which has dtype, shape,
shard, offset, size and masked CRC-32C.

The index and every tensor have a checksum, which is compared when they are read.
"""

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from ..errors import CheckpointError, errors_of
from . import crc32c
from .dtypes import DTYPES
from .protocol_buffers import read_fields, read_varint
from .source import Source, Tensor
from .sstable import read_table

CODES = {name: dtype.tensorflow for name, dtype in DTYPES.items()} | {"string": 7}  # of the object graph
_NAMES = {code: name for name, code in CODES.items()}
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the only string that is read; see object_graph.py


@dataclass(frozen=True)
class Entry(Tensor):
    """The place of one variable: `size` bytes from `offset` of shard `shard`; `crc` is their masked CRC-32C."""

    offset: int
    shard: int
    crc: int


class TensorBundle(Source):
    """A checkpoint opened for reading; `entries` maps each variable's name to its `Entry`, in the index's order.

    `object_graph` is the entry of the object graph of a TensorFlow 2 checkpoint, or None. With `data=False` the data
    files are not opened, and may be missing.

    Raises CheckpointError, one sentence naming the file, if index or shards are missing, damaged or of an unsupported
    kind (dtypes other than floats, int32 and int64).
    """

    def __init__(self, prefix: str | Path, data: bool = True):
        self.prefix = Path(prefix)
        self.path = self.prefix.with_name(f"{self.prefix.name}.index")
        if not self.path.is_file():
            raise CheckpointError(f"{self.path} is missing: a TensorFlow checkpoint has this file and data files")
        with errors_of(self.path):
            (_, header), *records = read_table(self.path)
            self.num_shards = dict(read_fields(header))[1]  # BundleHeaderProto: num_shards = 1
            self.entries = {entry.name: entry for entry in (_read_entry(key, value) for key, value in records)}
        self.object_graph = self.entries.get(OBJECT_GRAPH)
        if data:
            self.check_shards()
        if self.object_graph is not None:
            del self.entries[OBJECT_GRAPH]  # not a variable

    def shard(self, number: int) -> Path:
        """Return the path of one shard."""
        return self.prefix.with_name(f"{self.prefix.name}.data-{number:05d}-of-{self.num_shards:05d}")

    def in_file_order(self) -> list[Entry]:
        """Return the entries in the order of the shards, which is the fastest to read."""
        return sorted(self.entries.values(), key=lambda entry: (entry.shard, entry.offset, entry.size))

    def check_shards(self) -> None:
        """Raise CheckpointError if a data file is missing, or shorter than the index implies."""
        for number in range(self.num_shards):
            path = self.shard(number)
            if not path.is_file():
                raise CheckpointError(f"{path} is missing: the checkpoint has {self.num_shards} data files")
            end = max((each.offset + each.size for each in self.entries.values() if each.shard == number), default=0)
            size = path.stat().st_size
            if size < end:
                raise CheckpointError(f"{path} is truncated: it has {size:,} of {end:,} bytes")

    def read_object_graph(self) -> bytes:
        """Return the object graph's message: a string tensor, whose bytes follow their length and its checksum.

        Raises CheckpointError, without the file's name, if the checksum is wrong.
        """
        entry = self.object_graph
        with open(self.shard(entry.shard), "rb") as file:
            file.seek(entry.offset)
            data = file.read(entry.size)
        _, at = read_varint(data, 0)
        message = data[at + 4 :]
        # One checksum covers the length as 4 bytes; the other covers these, their checksum and the string itself.
        covered = len(message).to_bytes(4, "little")
        length_sum = crc32c.masked(covered).to_bytes(4, "little")
        if crc32c.masked(covered + length_sum + message) != entry.crc:
            raise CheckpointError("is damaged: the checksum of its object graph is wrong")
        return message

    def load(self, entry: Entry) -> np.ndarray:
        """Return one variable with any values; raise CheckpointError if its checksum is wrong."""
        path = self.shard(entry.shard)
        array = np.fromfile(path, DTYPES[entry.dtype].numpy, prod(entry.shape), offset=entry.offset)
        if crc32c.masked(array.view(np.uint8)) != entry.crc:
            raise CheckpointError(f"{path} is damaged: the checksum of {entry.name} is wrong")
        return array.reshape(entry.shape)


def _read_entry(key: bytes, message: bytes) -> Entry:
    """Read a BundleEntryProto: dtype = 1, shape = 2, shard_id = 3, offset = 4, size = 5, crc32c = 6."""
    name, fields = key.decode(), dict(read_fields(message))
    code, shape = fields.get(1, 0), _read_shape(fields.get(2, b""))
    shard, offset, size, crc = (fields.get(number, 0) for number in (3, 4, 5, 6))
    dtype = _NAMES.get(code, f"dtype {code} of TensorFlow")
    if dtype not in DTYPES and name != OBJECT_GRAPH:
        raise CheckpointError(f"stores {name} as {dtype}, but only {', '.join(DTYPES)} can be read")
    return Entry(name, dtype, shape, size, offset, shard, crc)


def _read_shape(message: bytes) -> tuple[int, ...]:
    """Read a TensorShapeProto: dim = 2 (size = 1, name = 2)."""
    dims = [dict(read_fields(dim)) for _, dim in read_fields(message)]
    return tuple(dim.get(1, 0) for dim in dims)
