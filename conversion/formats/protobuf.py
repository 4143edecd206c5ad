"""The wire format of protocol buffers, as far as a TensorBundle's index uses it.

A message is a sequence of fields, each a varint `number << 3 | wire_type` and a value: a varint (wire type 0), 8 bytes
(1), a length and as many bytes (2), or 4 bytes (5). Only the shortest form of a varint is accepted, which is what every
encoder writes: no two byte strings then mean the same.
"""

from collections.abc import Iterator

from ..errors import CheckpointError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned integer that starts at `at`, and the position after it.

    >>> read_varint(b"\\xac\\x02", 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        if at >= len(data):
            raise CheckpointError("is damaged: a number is truncated")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise CheckpointError("is damaged: a number is longer than 64 bits")
    if value >= 1 << 64 or (byte == 0 and shift):
        raise CheckpointError("is damaged: a number is not in the form that TensorFlow writes")
    return value, at


def write_varint(value: int) -> bytes:
    """The shortest varint of an unsigned integer.

    >>> write_varint(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Every field of a message in order: number, wire type, and the value, an int, or bytes for wire type 2.

    >>> list(read_fields(b"\\x08\\x01\\x1a\\x02\\x08\\x01"))
    [(1, 0, 1), (3, 2, b'\\x08\\x01')]
    """
    at = 0
    while at < len(message):
        tag, at = read_varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            value, at = read_varint(message, at)
        elif wire_type in (FIXED32, FIXED64, BYTES):
            length = {FIXED32: 4, FIXED64: 8}.get(wire_type)
            if length is None:
                length, at = read_varint(message, at)
            if length > len(message) - at:
                raise CheckpointError("is damaged: a record is truncated")
            value = message[at : at + length]
            at += length
            if wire_type != BYTES:
                value = int.from_bytes(value, "little")
        else:
            raise CheckpointError(f"is damaged: a record has a field of the unknown wire type {wire_type}")
        yield number, wire_type, value


def write_field(number: int, wire_type: int, value: int | bytes) -> bytes:
    """One field; the inverse of `read_fields`."""
    tag = write_varint(number << 3 | wire_type)
    if wire_type == VARINT:
        return tag + write_varint(value)
    if wire_type == BYTES:
        return tag + write_varint(len(value)) + value
    return tag + value.to_bytes(4 if wire_type == FIXED32 else 8, "little")
