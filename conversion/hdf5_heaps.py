"""The heaps in which an HDF5 file keeps texts of any length, looked through before h5py reads them.

The HDF5 library trusts the sizes in them: it may walk through a damaged one without end. A collection of texts is (HDF5
File Format Specification, III.E) "GCOL", a version, its size, and objects: index (2 bytes), references (2), 4 bytes of
nothing, size (8), and the text, padded to a multiple of 8. The object with the index 0 is the free room at the end.
"""

import struct
from pathlib import Path

from .errors import CheckpointError

_SIGNATURE = b"GCOL\1\0\0\0"
_PIECE = 1 << 24  # bytes looked through at a time


def check_heaps(path: Path) -> None:
    """Raises CheckpointError, without the file's name, where a collection does not consist of whole objects."""
    with open(path, "rb") as file:
        start, piece = 0, file.read(_PIECE)
        while piece:
            at = piece.find(_SIGNATURE)
            while at >= 0:
                _check_collection(file, start + at)
                at = piece.find(_SIGNATURE, at + 8)
            start += max(len(piece) - 7, 1)  # a signature may lie across two pieces
            file.seek(start)
            piece = file.read(_PIECE)
            if len(piece) < 8:
                return


def _check_collection(file, start: int) -> None:
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
