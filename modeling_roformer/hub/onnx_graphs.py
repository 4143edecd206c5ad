"""Check that a folder's graphs for ONNX Runtime are whole, from their outermost records alone.

A graph is a protocol buffer: records, each a number with the kind of its value, and the value, most of which say how many
bytes they have. A file that was cut off ends within a record. What is inside of them is not read, so that neither the
package onnx nor memory for the weights is needed.
"""

import mmap
from pathlib import Path

GRAPH = "onnx/model.onnx"  # where the Hub's tools look for it
NEEDED = {7, 8}  # ModelProto's fields `graph` and `opset_import`: https://onnx.ai/onnx/api/classes.html#modelproto
SIZES = {1: 8, 5: 4}  # bytes of the kinds of value that always have as many
NUMBER, BYTES = 0, 2


def check_graphs(directory: Path) -> None:
    """Raises ValueError, naming the file, if one of a folder's onnx/*.onnx is damaged."""
    for path in sorted(directory.glob("onnx/*.onnx")):
        if not _records(path) >= NEEDED:
            raise ValueError(f"{path} is not a whole ONNX graph: export the model again")


def _records(path: Path) -> set[int]:
    """Numbers of a file's outermost records; none if it does not consist of such."""
    found: set[int] = set()
    if path.stat().st_size == 0:
        return found
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = 0
        try:
            while at < len(data):
                tag, at = _number(data, at)
                kind = tag & 7
                if kind == NUMBER:
                    _, at = _number(data, at)
                elif kind == BYTES:
                    length, at = _number(data, at)
                    at += length
                else:
                    at += SIZES[kind]
                found.add(tag >> 3)
        except (IndexError, KeyError):
            return set()
        return found if at == len(data) else set()


def _number(data: mmap.mmap, at: int) -> tuple[int, int]:
    """The varint at a place, 7 bits a byte from the lowest, and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
