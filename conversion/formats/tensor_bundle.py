"""TensorBundle, the format of TensorFlow's checkpoints (version 2), read without TensorFlow.

A checkpoint with the prefix `model.ckpt` is a table `model.ckpt.index` (see sstable.py) and shards
`model.ckpt.data-00000-of-00001`, …, the tensors' bytes one after the other. The table maps "" to a BundleHeaderProto
and each variable's name to a BundleEntryProto (tensorflow/core/protobuf/tensor_bundle.proto), which has dtype, shape,
shard, offset, size and masked CRC-32C.

Entries must cover every byte of every shard exactly once, and tensors must have their checksums. Sizes are compared
with those of files before they are used, so a damaged checkpoint causes an error and costs no memory.
"""

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from ..errors import CheckpointError
from . import crc32c
from .dtypes import DTYPES
from .protocol_buffers import BYTES, FIXED32, VARINT, DamagedMessage, read_fields, read_varint
from .source import Piece, Source, read_piece
from .sstable import read_table

CODES = {name: dtype.tensorflow for name, dtype in DTYPES.items()} | {"string": 7}  # of the object graph
_NAMES = {code: name for name, code in CODES.items()}
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the only string that is read; see object_graph.py


@dataclass(frozen=True)
class Entry(Piece):
    """The place of one variable: `size` bytes from `offset` of shard `shard`; `crc` is their masked CRC-32C."""

    shard: int
    crc: int


class TensorBundle(Source):
    """A checkpoint opened for reading; `entries` maps each variable's name to its `Entry`, in the index's order.

    `object_graph` is the entry of the object graph of a TensorFlow 2 checkpoint, or None. With `data=False` the data
    files are not opened, and may be missing.

    Raises CheckpointError, one sentence naming the file, if index or shards are missing, damaged or of an unsupported
    kind (compressed, big-endian, partitioned variables, dtypes other than floats, int32 and int64).
    """

    def __init__(self, prefix: str | Path, data: bool = True):
        self.prefix = Path(prefix)
        self.path = self.prefix.with_name(f"{self.prefix.name}.index")
        if not self.path.is_file():
            raise CheckpointError(f"{self.path} is missing: a TensorFlow checkpoint has this file and data files")
        try:
            table = read_table(self.path)
            if not table or table[0][0] != b"":
                raise CheckpointError("is a table, but not the index of a checkpoint: it has no header")
            self.num_shards = _read_header(table[0][1])
            self.entries = {entry.name: entry for entry in (_read_entry(key, value) for key, value in table[1:])}
            self.object_graph = self.entries.get(OBJECT_GRAPH)
        except DamagedMessage as error:
            raise CheckpointError(f"{self.path} is damaged, or in a newer format: {error}") from None
        except CheckpointError as error:
            raise CheckpointError(f"{self.path} {error}") from None
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
        """Raise CheckpointError if the data files are missing, or do not have the sizes that the index implies."""
        for entry in self.entries.values():
            if entry.shard >= self.num_shards:
                raise CheckpointError(f"{self.path} puts {entry.name} into shard {entry.shard} of {self.num_shards}")
        entries = iter(self.in_file_order())
        entry = next(entries, None)
        for number in range(self.num_shards):
            path, end = self.shard(number), 0
            if not path.is_file():
                raise CheckpointError(f"{path} is missing: the checkpoint has {self.num_shards} data files")
            while entry is not None and entry.shard == number:
                if entry.offset != end:
                    trouble = "overlap in" if entry.offset < end else "leave a gap in"
                    raise CheckpointError(f"{self.path} is damaged: variables {trouble} {path.name} at {entry.name}")
                end += entry.size
                entry = next(entries, None)
            size = path.stat().st_size
            if size < end:
                raise CheckpointError(f"{path} is truncated: it has {size:,} of {end:,} bytes")
            if size > end:
                raise CheckpointError(f"{path} has {size - end:,} bytes at its end that belong to no variable")

    def read_object_graph(self) -> bytes:
        """Return the object graph's message: a string tensor, whose bytes follow their length and its checksum.

        Raises CheckpointError, without the file's name, if a checksum is wrong.
        """
        entry = self.object_graph
        with open(self.shard(entry.shard), "rb") as file:
            file.seek(entry.offset)
            data = file.read(entry.size)
        length, at = read_varint(data, 0)
        message = data[at + 4 :]
        # One checksum covers the length as 4 bytes; the other covers these, their checksum and the string itself.
        covered = (length & 0xFFFFFFFF).to_bytes(4, "little")
        length_sum = crc32c.masked(covered).to_bytes(4, "little")
        if length != len(message) or data[at : at + 4] != length_sum:
            raise CheckpointError("is damaged: the length of its object graph is wrong")
        if crc32c.masked(covered + length_sum + message) != entry.crc:
            raise CheckpointError("is damaged: the checksum of its object graph is wrong")
        return message

    def load(self, entry: Entry) -> np.ndarray:
        """Return one variable with any values; raise CheckpointError if its checksum is wrong."""
        path = self.shard(entry.shard)
        array = read_piece(path, entry)
        if crc32c.masked(array.reshape(-1).view(np.uint8)) != entry.crc:
            raise CheckpointError(f"{path} is damaged: the checksum of {entry.name} is wrong")
        return array


def _read_header(message: bytes) -> int:
    """Return the number of shards; BundleHeaderProto: num_shards = 1, endianness = 2, version = 3."""
    num_shards = 0
    for number, value in read_fields(message, {1: VARINT, 2: VARINT, 3: BYTES}, "its header"):
        if number == 1:
            num_shards = value
        elif number == 2 and value:
            raise CheckpointError("belongs to a checkpoint of a big-endian machine, which is not supported")
        # VersionDef: producer = 1, min_consumer = 2, bad_consumers = 3; this reader is a consumer of version 1.
        elif number == 3 and dict(read_fields(value, None, "its version")).get(2, 0) not in (0, 1):
            raise CheckpointError("is in a newer format than TensorBundle version 1, which is supported")
    return num_shards


def _read_entry(key: bytes, message: bytes) -> Entry:
    """Read a BundleEntryProto: dtype = 1, shape = 2, shard_id = 3, offset = 4, size = 5, crc32c = 6, slices = 7."""
    name = key.decode()
    wire_types = {1: VARINT, 2: BYTES, 3: VARINT, 4: VARINT, 5: VARINT, 6: FIXED32, 7: BYTES}
    fields = dict(read_fields(message, wire_types, name))
    if 7 in fields:
        raise CheckpointError(f"stores {name} in slices of a partitioned variable, which is not supported")
    code, shape = fields.get(1, 0), _read_shape(fields.get(2, b""), name)
    shard, offset, size, crc = (fields.get(number, 0) for number in (3, 4, 5, 6))
    dtype = _NAMES.get(code, f"dtype {code} of TensorFlow")
    if (name, dtype, shape) == (OBJECT_GRAPH, "string", ()):
        return Entry(name, dtype, shape, size, offset, shard, crc)
    if dtype not in DTYPES:
        raise CheckpointError(f"stores {name} as {dtype}, but only {', '.join(DTYPES)} can be read")
    if prod(shape) * DTYPES[dtype].numpy.itemsize != size:
        raise CheckpointError(f"is damaged: {name} of shape {shape} and dtype {dtype} cannot take {size} bytes")
    return Entry(name, dtype, shape, size, offset, shard, crc)


def _read_shape(message: bytes, name: str) -> tuple[int, ...]:
    """Read a TensorShapeProto: dim = 2 (size = 1, name = 2), unknown_rank = 3."""
    where = f"the shape of {name}"
    dims = [dict(read_fields(dim, {1: VARINT, 2: BYTES}, where)) for _, dim in read_fields(message, {2: BYTES}, where)]
    return tuple(dim.get(1, 0) for dim in dims)
