"""TensorBundle, the format of TensorFlow's checkpoints (version 2), read without TensorFlow.

A checkpoint with the prefix `model.ckpt` is a table `model.ckpt.index` (see sstable.py) and shards
`model.ckpt.data-00000-of-00001`, …, the tensors' bytes one after the other. The table maps "" to a BundleHeaderProto
and each variable's name to a BundleEntryProto (tensorflow/core/protobuf/tensor_bundle.proto), which has dtype, shape,
shard, offset, size and masked CRC-32C.

Nothing is taken on trust: entries must cover every byte of every shard exactly once, and what is read is checked
against its checksum. No size is trusted before it has been compared with the size of a file, so a damaged or malicious
checkpoint causes an error and costs no memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from ..errors import CheckpointError
from . import crc32c
from .dtypes import CODES, STORAGE
from .pieces import CHUNK, read_pieces
from .protobuf import BYTES, FIXED32, VARINT, read_fields, read_varint
from .sstable import read_table

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the one string that is read; see object_graph.py
OBJECT_GRAPH_LIMIT = 1 << 26  # bytes; that of a real checkpoint takes kilobytes
MAX_RANK = 254  # TensorFlow's own limit


@dataclass(frozen=True)
class Entry:
    """Where one variable is: `size` bytes from `offset` of shard `shard`, `crc` their masked CRC-32C."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int


class TensorBundle:
    """A checkpoint opened for reading; `entries` maps each variable's name to its `Entry`, in the index's order.

    `object_graph` is the entry of the object graph that a checkpoint of TensorFlow 2 has, or None. With `data=False`
    the data files are not opened, and may be missing: then only the entries can be read.

    Raises CheckpointError, one sentence naming the file, if index or shards are missing, damaged or of an unsupported
    kind (compressed, big-endian, partitioned variables, dtypes other than floats, int32 and int64).

    >>> bundle = TensorBundle("chinese_roformer-char_L-12_H-768_A-12/bert_model.ckpt")
    >>> bundle.read("bert/embeddings/LayerNorm/gamma").shape
    (768,)
    """

    def __init__(self, prefix: str | Path, data: bool = True):
        self.prefix = Path(prefix)
        self.path = self.prefix.with_name(f"{self.prefix.name}.index")
        if not self.path.is_file():
            raise CheckpointError(
                f"{self.path} is missing: a TensorFlow checkpoint consists of this file and data files"
            )
        try:
            table = read_table(self.path)
            if not table or table[0][0] != b"":
                raise CheckpointError("is a table, but not the index of a checkpoint: it has no header")
            self.num_shards = _read_header(table[0][1])
            self.entries = {entry.name: entry for entry in (_read_entry(key, value) for key, value in table[1:])}
            self.object_graph = self.entries.get(OBJECT_GRAPH)
        except CheckpointError as error:
            raise CheckpointError(f"{self.path} {error}") from None
        if data:
            self.check_shards()
        if self.object_graph is not None:
            del self.entries[OBJECT_GRAPH]  # not a variable

    def shard(self, number: int) -> Path:
        """The file of one shard."""
        return self.prefix.with_name(f"{self.prefix.name}.data-{number:05d}-of-{self.num_shards:05d}")

    def in_file_order(self) -> list[Entry]:
        """The entries in the order of the shards, which is the fastest to read."""
        return sorted(self.entries.values(), key=lambda entry: (entry.shard, entry.offset, entry.size))

    def check_shards(self) -> None:
        """Raises CheckpointError if the data files are missing, or do not have the sizes that the index implies."""
        for entry in self.entries.values():
            if entry.shard >= self.num_shards:
                raise CheckpointError(
                    f"{self.path} is damaged: it puts {entry.name} into shard {entry.shard} of {self.num_shards}"
                )
        entries = iter(self.in_file_order())
        entry = next(entries, None)
        for number in range(self.num_shards):
            path, end = self.shard(number), 0
            if not path.is_file():
                raise CheckpointError(f"{path} is missing: the checkpoint has {self.num_shards} data files")
            while entry is not None and entry.shard == number:
                if entry.offset != end:
                    trouble = "overlap in" if entry.offset < end else "leave a gap in"
                    raise CheckpointError(
                        f"{self.path} is damaged: the variables {trouble} {path.name} at {entry.name}"
                    )
                end += entry.size
                entry = next(entries, None)
            size = path.stat().st_size
            if size < end:
                raise CheckpointError(f"{path} is truncated: it has {size:,} of {end:,} bytes")
            if size > end:
                raise CheckpointError(f"{path} has {size - end:,} bytes at its end that belong to no variable")

    def chunks(self, name: str) -> Iterator[np.ndarray]:
        """The variable's bytes in file order, as uint8 arrays of at most CHUNK bytes, each of whole elements.

        Each array is only valid until the next is requested. The checksum is compared after the last one: discard what
        was made from the earlier ones if the iteration ends in CheckpointError.
        """
        entry = self.entries[name]
        yield from self._read_into(entry, np.empty(min(entry.size, CHUNK), np.uint8))

    def read(self, name: str) -> np.ndarray:
        """One variable, checked, as an array in the storage of its dtype (bfloat16 as uint16)."""
        entry = self.entries[name]
        array = np.empty(entry.shape, STORAGE[entry.dtype])
        for _ in self._read_into(entry, array.reshape(-1).view(np.uint8)):
            pass
        return array

    def check(self, name: str) -> None:
        """Read one variable only to check its checksum."""
        for _ in self.chunks(name):
            pass

    def read_object_graph(self) -> bytes:
        """The object graph's message, checked: a string tensor, whose bytes follow their length and its checksum.

        Raises CheckpointError, without the file's name.
        """
        entry = self.object_graph
        if entry.size > OBJECT_GRAPH_LIMIT:
            raise CheckpointError(f"is damaged: its object graph has {entry.size:,} bytes, more than any model's")
        with open(self.shard(entry.shard), "rb") as file:
            file.seek(entry.offset)
            data = file.read(entry.size)
        length, at = read_varint(data, 0)
        message = data[at + 4 :]
        # One checksum is of the length as 4 bytes; the other is of these, their checksum and the string itself.
        covered = (length & 0xFFFFFFFF).to_bytes(4, "little")
        length_sum = crc32c.masked(covered).to_bytes(4, "little")
        if length != len(message) or data[at : at + 4] != length_sum:
            raise CheckpointError("is damaged: the length of its object graph is wrong")
        if crc32c.masked(covered + length_sum + message) != entry.crc:
            raise CheckpointError("is damaged: the checksum of its object graph is wrong")
        return message

    def _read_into(self, entry: Entry, buffer: np.ndarray) -> Iterator[np.ndarray]:
        """What read_pieces yields; the checksum is compared after the last."""
        path, crc = self.shard(entry.shard), 0
        for chunk in read_pieces(path, entry, buffer):
            crc = crc32c.extend(crc, chunk)
            yield chunk
        if crc32c.mask(crc) != entry.crc:
            raise CheckpointError(f"{path} is damaged: the checksum of {entry.name} is wrong")


def _read_header(message: bytes) -> int:
    """The number of shards; BundleHeaderProto: num_shards = 1, endianness = 2, version = 3."""
    num_shards = 0
    for number, value in _fields(message, {1: VARINT, 2: VARINT, 3: BYTES}, "its header"):
        if number == 1:
            num_shards = value
        elif number == 2 and value:
            raise CheckpointError("belongs to a checkpoint of a big-endian machine, which is not supported")
        elif number == 3:
            _check_version(value)
    if not 0 < num_shards < 1 << 31:
        raise CheckpointError("is damaged: its header gives no valid number of data files")
    return num_shards


def _check_version(message: bytes) -> None:
    """VersionDef: producer = 1, min_consumer = 2, bad_consumers = 3; this reader is a consumer of version 1."""
    for number, wire_type, value in read_fields(message):
        if number == 2 and (wire_type != VARINT or value > 1):
            raise CheckpointError("is in a newer format than TensorBundle version 1, which is supported")


def _read_entry(key: bytes, message: bytes) -> Entry:
    """BundleEntryProto: dtype = 1, shape = 2, shard_id = 3, offset = 4, size = 5, crc32c = 6, slices = 7."""
    try:
        name = key.decode()
    except UnicodeDecodeError:
        raise CheckpointError(f"is damaged: the name {key!r} is not UTF-8") from None
    code, shape, shard, offset, size, crc = 0, (), 0, 0, 0, 0
    kinds = {1: VARINT, 2: BYTES, 3: VARINT, 4: VARINT, 5: VARINT, 6: FIXED32, 7: BYTES}
    for number, value in _fields(message, kinds, name):
        if number == 1:
            code = value
        elif number == 2:
            shape = _read_shape(value, name)
        elif number == 3:
            shard = value
        elif number == 4:
            offset = value
        elif number == 5:
            size = value
        elif number == 6:
            crc = value
        else:
            raise CheckpointError(f"stores {name} in slices of a partitioned variable, which is not supported")
    dtype = CODES.get(code, f"dtype {code}")
    if (name, dtype, shape) == (OBJECT_GRAPH, "string", ()):
        return Entry(name, dtype, shape, shard, offset, size, crc)
    if dtype not in STORAGE:
        raise CheckpointError(f"stores {name} as {dtype}, but only {', '.join(STORAGE)} can be read")
    if prod(shape) * STORAGE[dtype].itemsize != size:
        raise CheckpointError(f"is damaged: {name} of shape {shape} and dtype {dtype} cannot take {size} bytes")
    return Entry(name, dtype, shape, shard, offset, size, crc)


def _read_shape(message: bytes, name: str) -> tuple[int, ...]:
    """TensorShapeProto: dim = 2 (size = 1, name = 2), unknown_rank = 3."""
    shape = []
    for _, dim in _fields(message, {2: BYTES}, f"the shape of {name}"):
        size = 0
        for number, value in _fields(dim, {1: VARINT, 2: BYTES}, f"the shape of {name}"):
            if number == 1:
                size = value
        shape.append(size)
    if len(shape) > MAX_RANK or any(size >= 1 << 63 for size in shape):
        raise CheckpointError(f"is damaged: {name} has an impossible shape")
    return tuple(shape)


def _fields(message: bytes, kinds: dict[int, int], where: str) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, which may only have the numbers and wire types in `kinds`."""
    for number, wire_type, value in read_fields(message):
        if kinds.get(number) != wire_type:
            raise CheckpointError(f"has the unknown field {number} in {where}: it is damaged or in a newer format")
        yield number, value
