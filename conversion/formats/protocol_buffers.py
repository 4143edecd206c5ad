"""Protocol buffers, read and written without the package protobuf.

A message is a sequence of records: a varint `number << 3 | wire_type`, then the value: a varint (wire type 0), 8 bytes
(1), a length and as many bytes (2), or 4 bytes (5): https://protobuf.dev/programming-guides/encoding.

Nothing is checked here: checkpoints store a checksum of every message, which is compared before the message is read.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4, groups, are obsolete
SIZES = {FIXED64: 8, FIXED32: 4}


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned integer at a position, 7 bits a byte from the lowest, and the position after it.

    >>> read_varint(b"\\xac\\x02", 0)
    (300, 2)
    """
    value, shift = 0, 0
    while data[at] >= 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message.

    >>> list(read_fields(b"\\x08\\x01\\x1a\\x02\\x08\\x01"))
    [(1, 1), (3, b'\\x08\\x01')]
    """
    at = 0
    while at < len(message):
        tag, at = read_varint(message, at)
        wire_type = tag & 7
        value = SIZES.get(wire_type)
        if value is None:
            value, at = read_varint(message, at)
        if wire_type != VARINT:
            value, at = message[at : at + value], at + value
            value = value if wire_type == BYTES else int.from_bytes(value, "little")
        yield tag >> 3, value


def write_varint(value: int) -> bytes:
    """Return the shortest varint of an unsigned integer."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_field(number: int, wire_type: int, value: int | bytes) -> bytes:
    """Return one field; the inverse of `read_fields`."""
    tag = write_varint(number << 3 | wire_type)
    if isinstance(value, bytes):
        return tag + write_varint(len(value)) + value
    if wire_type == VARINT:
        return tag + write_varint(value)
    return tag + value.to_bytes(SIZES[wire_type], "little")
