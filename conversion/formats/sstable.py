"""Sorted string tables: the file format of a checkpoint's index, which TensorFlow adopted from LevelDB.

    data blocks | metaindex block | index block | footer of 48 bytes

A block is a sequence of entries with increasing keys, followed by its restart points (uint32 each) and their count. An
entry says how many bytes its key shares with the previous key, how many follow, and how long the value is (three
varints), followed by those bytes and the value; at a restart point nothing is shared. Each block is followed by one
byte, the compression (0: none), and the masked CRC-32C of block and byte. The index block maps a key to the handle
(offset and size, two varints) of each data block; the key is between the block's last key and the next block's first.
The footer has the handles of metaindex and index, zeros up to 40 bytes, and a magic number.

The reader accepts only what TensorFlow writes: blocks follow each other without a gap, the metaindex is empty, numbers
are in their shortest form. So any changed byte is detected, and a damaged file costs no more memory than its own size.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import CheckpointError
from . import crc32c
from .protocol_buffers import read_varint, write_varint

MAGIC = 0xDB4775248B80FB57
FOOTER_SIZE = 48
TRAILER_SIZE = 5

BLOCK_SIZE = 1 << 18  # of a data block, as in TensorFlow
RESTART_INTERVAL = 16


def read_table(path: Path) -> list[tuple[bytes, bytes]]:
    """Return every key and value of a table, in order; each block is checked against its CRC-32C.

    Raises CheckpointError or DamagedMessage, without the file's name.
    """
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        if size < FOOTER_SIZE:
            raise CheckpointError(f"is not a TensorFlow index: its {size} bytes are fewer than those of a footer")
        file.seek(size - FOOTER_SIZE)
        metaindex, index = _read_footer(file.read(FOOTER_SIZE))
        if sum(index) != size - FOOTER_SIZE - TRAILER_SIZE:
            raise CheckpointError("is damaged: its index block does not end where the footer begins")
        blocks = [(last, _read_handle(handle)) for last, handle in _read_block(file, index)]
        end = 0
        for offset, length in [*(handle for _, handle in blocks), metaindex, index]:
            if offset != end:
                raise CheckpointError(f"is damaged: a block should begin at byte {end}, not at {offset}")
            end += length + TRAILER_SIZE
        if any(_read_block(file, metaindex)):
            raise CheckpointError("has a metaindex that is not empty, which TensorFlow never writes")

        table, floor = [], None
        for last, handle in blocks:
            for key, value in _read_block(file, handle):
                if floor is not None and key <= floor:
                    raise CheckpointError("is damaged: its names are out of order")
                table.append((key, value))
                floor = key
            if floor is None or last < floor:
                raise CheckpointError("is damaged: its index block does not match its data blocks")
            floor = last
    return table


def _read_footer(footer: bytes) -> tuple[tuple[int, int], tuple[int, int]]:
    if int.from_bytes(footer[-8:], "little") != MAGIC:
        raise CheckpointError("is not a TensorFlow index: it does not end with the magic number")
    numbers, at = [], 0
    for _ in range(4):
        number, at = read_varint(footer, at, len(footer) - 8)
        numbers.append(number)
    if any(footer[at:-8]):
        raise CheckpointError("is damaged: the padding of its footer is not zero")
    return (numbers[0], numbers[1]), (numbers[2], numbers[3])


def _read_handle(value: bytes) -> tuple[int, int]:
    offset, at = read_varint(value, 0, len(value))
    length, at = read_varint(value, at, len(value))
    if at != len(value):
        raise CheckpointError("is damaged: its index block holds an entry that is not a block handle")
    return offset, length


def _read_block(file, handle: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    offset, length = handle
    file.seek(offset)
    block = file.read(length + TRAILER_SIZE)
    if len(block) != length + TRAILER_SIZE or length < 4:
        raise CheckpointError(f"is damaged: the block at byte {offset} is truncated")
    contents, (compression, crc) = block[:length], struct.unpack("<BI", block[length:])
    if crc32c.masked(block[: length + 1]) != crc:
        raise CheckpointError(f"is damaged: the checksum of the block at byte {offset} is wrong")
    if compression:
        raise CheckpointError("is compressed, which TensorFlow's own checkpoints never are")
    return _read_entries(contents)


def _read_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    count = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * count
    if count < 1 or end < 0:
        raise CheckpointError("is damaged: the restart points of a block do not fit into it")
    restarts = struct.unpack(f"<{count}I", block[end:-4])
    starts, at, key = {0}, 0, b""
    while at < end:
        start = at
        shared, at = read_varint(block, at, end)
        added, at = read_varint(block, at, end)
        length, at = read_varint(block, at, end)
        if shared > len(key) or added + length > end - at:
            raise CheckpointError("is damaged: an entry does not fit into its block")
        if shared == 0:
            starts.add(start)
        key = key[:shared] + block[at : at + added]
        yield key, block[at + added : at + added + length]
        at += added + length
    if restarts[0] != 0 or list(restarts) != sorted(set(restarts)) or not starts.issuperset(restarts):
        raise CheckpointError("is damaged: a restart point of a block is not the start of an entry")


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
    """Return a short key that is not before `key`, with which TensorFlow ends its index block."""
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
