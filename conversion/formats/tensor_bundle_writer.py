"""Write a TensorBundle, the format of TensorFlow's checkpoints, without TensorFlow; tensor_bundle.py describes it."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from . import crc32c
from .dtypes import DTYPES
from .protocol_buffers import BYTES, FIXED32, VARINT, write_field
from .sstable import write_table
from .tensor_bundle import CODES, Entry


def write_bundle(
    prefix: str | Path,
    tensors: Iterable[tuple[str, np.ndarray]],
    *,
    dtype: str | Mapping[str, str] | None = None,
    num_shards: int = 1,
) -> None:
    """Write a checkpoint that TensorFlow reads, taking the tensors one at a time.

    `tensors` are pairs of name and array; `dtype` names the arrays' dtype if NumPy does not have it (arrays of uint16
    as "bfloat16"), for all of them or by name. With several shards, tensor i goes to shard i mod num_shards.
    """
    prefix = Path(prefix)
    paths = [prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{num_shards:05d}") for i in range(num_shards)]
    entries = {}
    with ExitStack() as stack:
        files = [stack.enter_context(open(path, "wb")) for path in paths]
        for number, (name, array) in enumerate(tensors):
            shard = number % num_shards
            stored = (dtype.get(name) if isinstance(dtype, Mapping) else dtype) or array.dtype.name
            data = np.ascontiguousarray(array, DTYPES[stored].numpy).reshape(-1).view(np.uint8)
            crc = crc32c.masked(data)
            entries[name] = Entry(name, stored, array.shape, len(data), files[shard].tell(), shard, crc)
            files[shard].write(data)
    write_index(prefix, entries.values(), num_shards)


def write_index(prefix: str | Path, entries: Iterable[Entry], num_shards: int) -> None:
    """Write only the index, for tensors that are already in their shards."""
    prefix = Path(prefix)
    table = {b"": _header(num_shards)} | {entry.name.encode(): _record(entry) for entry in entries}
    write_table(prefix.with_name(f"{prefix.name}.index"), sorted(table.items()))


def _header(num_shards: int) -> bytes:
    version = write_field(1, VARINT, 1)
    return write_field(1, VARINT, num_shards) + write_field(3, BYTES, version)


def _record(entry: Entry) -> bytes:
    dims = b"".join(write_field(2, BYTES, write_field(1, VARINT, size) if size else b"") for size in entry.shape)
    fields = [(1, VARINT, CODES[entry.dtype]), (2, BYTES, dims)]
    # Zeros are left out, as by every encoder of protocol buffers.
    fields += [(i, VARINT, n) for i, n in ((3, entry.shard), (4, entry.offset), (5, entry.size)) if n]
    return b"".join(write_field(*field) for field in [*fields, (6, FIXED32, entry.crc)])
