"""The heaps in which an HDF5 file keeps texts of any length, looked through before h5py reads them.

The HDF5 library trusts the sizes in them: it may walk through a damaged one without end. A collection of texts is (HDF5
File Format Specification, III.E) "GCOL", a version, its size, and objects: index (2 bytes), references (2), 4 bytes of
nothing, size (8), and the text, padded to a multiple of 8. The object with the index 0 is the free room at the end.
What refers to a text says its length (4 bytes), the place of its collection (8) and its index (4).
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from .errors import CheckpointError

_SIGNATURE = b"GCOL\1\0\0\0"
_PIECE = 1 << 24  # bytes looked through at a time


def check_heaps(path: Path) -> dict[int, int]:
    """Where the collections begin -> their sizes in bytes.

    Raises CheckpointError, without the file's name, where one does not consist of whole objects.
    """
    found = {}
    with open(path, "rb") as file:
        start, piece = 0, file.read(_PIECE)
        while piece:
            at = piece.find(_SIGNATURE)
            while at >= 0:
                found[start + at] = _check_collection(file, start + at)
                at = piece.find(_SIGNATURE, at + 8)
            start += max(len(piece) - 7, 1)  # a signature may lie across two pieces
            file.seek(start)
            piece = file.read(_PIECE)
            if len(piece) < 8:
                break
    return found


def check_references(path: Path, collections: dict[int, int], regions: list[tuple[int, int, str]]) -> None:
    """Raises CheckpointError where a text is said to be longer than its collection: h5py would make room for it first.

    `regions` (start, end, what they are) hold no references, and lie in order.
    """
    with open(path, "rb") as file:
        at = 0
        for start, end, _ in [*regions, (path.stat().st_size, 0, "")]:
            file.seek(at)
            between = file.read(max(start - at, 0))
            for place, size in collections.items():
                if any(length > size for length in _lengths(between, at, place)):
                    raise CheckpointError(
                        f"is damaged: the heap of texts at byte {place:,} has no room for one it is to hold"
                    )
            at = max(at, end)


def _lengths(data: bytes, start: int, place: int) -> Iterator[int]:
    """The lengths of the texts in a collection that data refer to, which are read from `start`: aligned, as all is."""
    place_bytes = place.to_bytes(8, "little")
    found = data.find(place_bytes, 4)
    while found >= 0:
        length, _, index = struct.unpack_from("<IQI", data[found - 4 : found + 12].ljust(16, b"\0"))
        if (start + found) % 8 == 4 and 0 < index < 1 << 16:
            yield length
        found = data.find(place_bytes, found + 1)


def _check_collection(file, start: int) -> int:
    file.seek(start)
    header = file.read(16)
    size = int.from_bytes(header[8:], "little")
    left = size - 16
    collection = file.read(left) if 0 <= left <= _PIECE else b""
    if len(header) < 16 or len(collection) != left:
        raise CheckpointError(f"is damaged: the heap of texts at byte {start:,} is cut off")
    at = 0
    while left - at >= 16:
        index, length = struct.unpack_from("<H6xQ", collection, at)
        taken = length if index == 0 else 16 + (length + 7) // 8 * 8
        if taken < 16 or taken > left - at or (index == 0 and taken != left - at):
            raise CheckpointError(f"is damaged: the heap of texts at byte {start:,} has no room for its {index}. text")
        at += taken
    return size
