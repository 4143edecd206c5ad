"""The global heaps in which an HDF5 file keeps variable-length strings, checked before h5py reads them.

The HDF5 library trusts the sizes in them: it may loop forever on a damaged heap, and allocates a string of any length
before it looks for it. A collection of strings is (HDF5 File Format Specification, III.E) "GCOL", a version, its size,
and objects: index (2 bytes), reference count (2), 4 reserved bytes, size (8), and the string, padded to a multiple of
8. The object with index 0 is the free space at the end. An attribute (IV.A.2.m) is a version, the sizes of its name,
type and shape, these three, and then for each string its length (4 bytes), the address of its collection (8) and its
index (4).
"""

import re
import struct
from math import prod
from pathlib import Path

from ..errors import CheckpointError

_SIGNATURE = b"GCOL\1\0\0\0"
_PIECE = 1 << 24  # bytes searched at a time
_ATTRIBUTE = re.compile(rb"(layer_names|weight_names)\d*\0|model_config\0")  # the attributes that are read
_TEXT_OF_ANY_LENGTH = 9  # the class of the type of variable-length strings
# Version of an attribute -> the bytes before its name, and whether name, type and shape are padded.
_VERSIONS = {1: (8, True), 2: (8, False), 3: (9, False)}


def check_heaps(path: Path) -> dict[int, dict[int, int]]:
    """Return address of each collection -> index of each string -> its size in bytes.

    Raises CheckpointError, without the file's name, if a collection does not consist of complete objects.
    """
    found = {}
    with open(path, "rb") as file:
        start, piece = 0, file.read(_PIECE)
        while piece:
            at = piece.find(_SIGNATURE)
            while at >= 0:
                found[start + at] = _read_collection(file, start + at)
                at = piece.find(_SIGNATURE, at + 8)
            start += max(len(piece) - 7, 1)  # a signature may span two pieces
            file.seek(start)
            piece = file.read(_PIECE)
            if len(piece) < 8:
                break
    return found


def check_references(path: Path, heaps: dict[int, dict[int, int]], regions: list[tuple[int, int, str]]) -> None:
    """Raise CheckpointError, without the file's name, if an attribute refers to a string that is in no collection.

    `regions` (start, end, title) have no attributes, and are in order.
    """
    with open(path, "rb") as file:
        at = 0
        for start, end, _ in [*regions, (path.stat().st_size, 0, "")]:
            file.seek(at)
            between = file.read(max(start - at, 0))
            for match in _ATTRIBUTE.finditer(between):
                for length, place, index in _references(between, match.start()):
                    if length and length > heaps.get(place, {}).get(index, -1):
                        name = match[0].rstrip(b"\0").decode()
                        raise CheckpointError(f"is damaged: its {name} refers to a string that is in no global heap")
            at = max(at, end)


def _references(data: bytes, name_at: int) -> list[tuple[int, int, int]]:
    """Return length, collection and index of the strings of the attribute named at `name_at`, if there is one."""
    for version, (before, padded) in _VERSIONS.items():
        header = data[max(name_at - before, 0) : name_at]
        if len(header) != before or header[0] != version:
            continue
        sizes = struct.unpack_from("<2x3H", header)
        name, kind, shape = ((size + 7) // 8 * 8 if padded else size for size in sizes)
        kind_at, shape_at = name_at + name, name_at + name + kind
        texts_at = shape_at + shape
        if texts_at > len(data) or kind < 1 or shape < 4 or data[kind_at] & 15 != _TEXT_OF_ANY_LENGTH:
            return []
        rank, start = data[shape_at + 1], shape_at + (8 if data[shape_at] == 1 else 4)
        if start + 8 * rank > texts_at:
            return []
        count = min(prod(struct.unpack_from(f"<{rank}Q", data, start)), (len(data) - texts_at) // 16)
        return list(struct.iter_unpack("<IQI", data[texts_at : texts_at + 16 * count]))
    return []


def _read_collection(file, start: int) -> dict[int, int]:
    file.seek(start)
    header = file.read(16)
    size = int.from_bytes(header[8:], "little")
    left = size - 16
    collection = file.read(left) if 0 <= left <= _PIECE else b""
    if len(header) < 16 or len(collection) != left:
        raise CheckpointError(f"is damaged: the global heap at byte {start:,} is truncated")
    at, found = 0, {}
    while left - at >= 16:
        index, length = struct.unpack_from("<H6xQ", collection, at)
        taken = length if index == 0 else 16 + (length + 7) // 8 * 8
        if taken < 16 or taken > left - at or (index == 0 and taken != left - at):
            raise CheckpointError(f"is damaged: the global heap at byte {start:,} has no room for its string {index}")
        found[index] = length
        at += taken
    return found
