"""Sorted string tables: the file format of a checkpoint's index, which TensorFlow adopted from LevelDB.

    data blocks | metaindex block | index block | footer of 48 bytes

A block is a sequence of entries with increasing keys, followed by its restart points (uint32 each) and their count. An
entry says how many bytes its key shares with the previous key, how many follow, and how long the value is (three
varints), followed by those bytes and the value; at a restart point nothing is shared. Each block is followed by one
byte, the compression (0: none), and the masked CRC-32C of block and byte. The index block maps a key to the handle
(offset and size, two varints) of each data block; the key is between the block's last key and the next block's first.
The footer has the handles of metaindex and index, zeros up to 40 bytes, and a magic number.

The metaindex is empty. Every block but the footer has a checksum, so what is in a block is what TensorFlow wrote.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import CheckpointError
from . import crc32c
from .protocol_buffers import read_varint, write_varint

MAGIC = 0xDB4775248B80FB57
FOOTER_SIZE = 48

BLOCK_SIZE = 1 << 18  # of a data block, as in TensorFlow
RESTART_INTERVAL = 16


def read_table(path: Path) -> list[tuple[bytes, bytes]]:
    """Return every key and value of a table, in order; each block is checked against its CRC-32C.

    Raises CheckpointError, without the file's name.
    """
    content = path.read_bytes()
    if len(content) < FOOTER_SIZE or int.from_bytes(content[-8:], "little") != MAGIC:
        raise CheckpointError("is not a TensorFlow index: it does not end with the magic number")
    footer = content[-FOOTER_SIZE:-8]
    _, _, at = _read_handle(footer, 0)  # of the metaindex
    offset, length, _ = _read_handle(footer, at)
    table = []
    for _, handle in _read_block(content, offset, length):
        table += _read_block(content, *_read_handle(handle, 0)[:2])
    return table


def _read_handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Return offset and length of a block, and the position after the handle."""
    offset, at = read_varint(data, at)
    length, at = read_varint(data, at)
    return offset, length, at


def _read_block(content: bytes, offset: int, length: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a block; raise CheckpointError if it is truncated or damaged."""
    end = offset + length + 1  # of the block and the byte of its compression, which TensorFlow never uses
    if crc32c.masked(content[offset:end]).to_bytes(4, "little") != content[end : end + 4]:
        raise CheckpointError(f"is damaged: the checksum of the block at byte {offset} is wrong")
    block = content[offset : end - 1]
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")  # the restart points, and their number
    at, key = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        added, at = read_varint(block, at)
        size, at = read_varint(block, at)
        key = key[:shared] + block[at : at + added]
        yield key, block[at + added : at + added + size]
        at += added + size


def write_table(path: Path, entries: Iterable[tuple[bytes, bytes]]) -> None:
    """Write a table as TensorFlow does; keys must be in strictly increasing order."""
    index, block, size = [], [], 0
    with open(path, "wb") as file:
        for entry in entries:
            block.append(entry)
            size += len(entry[0]) + len(entry[1])
            if size >= BLOCK_SIZE:
                index.append((entry[0], _write_block(file, block, RESTART_INTERVAL)))
                block, size = [], 0
        if block:
            index.append((_successor(block[-1][0]), _write_block(file, block, RESTART_INTERVAL)))
        metaindex = _write_block(file, [], RESTART_INTERVAL)
        footer = metaindex + _write_block(file, index, 1)
        file.write(footer.ljust(FOOTER_SIZE - 8, b"\0") + MAGIC.to_bytes(8, "little"))


def _successor(key: bytes) -> bytes:
    """Return a short key that is not before `key`. TensorFlow ends its index block with it."""
    rest = key.lstrip(b"\xff")
    return key[: len(key) - len(rest)] + bytes([rest[0] + 1]) if rest else key


def _write_block(file, entries: list[tuple[bytes, bytes]], restart_interval: int) -> bytes:
    """Write one block with its trailer; return its handle."""
    block, restarts, before = bytearray(), [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % restart_interval == 0:
            restarts.append(len(block))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        block += write_varint(shared) + write_varint(len(key) - shared) + write_varint(len(value))
        block += key[shared:] + value
        before = key
    restarts = restarts or [0]
    block += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    block.append(0)  # not compressed
    offset = file.tell()
    file.write(bytes(block) + struct.pack("<I", crc32c.masked(bytes(block))))
    return write_varint(offset) + write_varint(len(block) - 1)
