"""Protocol buffers, read and written without the package protobuf.

A message is a sequence of records: a varint `number << 3 | wire_type`, then the value: a varint (wire type 0), 8 bytes
(1), a length and as many bytes (2), or 4 bytes (5): https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator, Mapping

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4, groups, are obsolete
SIZES = {FIXED64: 8, FIXED32: 4}


class DamagedMessage(ValueError):
    """A message that is truncated, or is not a message."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned integer at a position, 7 bits a byte from the lowest, and the position after it.

    >>> read_varint(b"\\xac\\x02", 0)
    (300, 2)
    """
    value = 0
    for place in range(at, len(data)):
        value |= (data[place] & 0x7F) << 7 * (place - at)
        if data[place] < 0x80:
            return value, place + 1
    raise DamagedMessage(f"there is no integer at byte {at:,}")


def read_fields(message: bytes, wire_types: Mapping[int, int] | None, where: str) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message.

    `wire_types` maps the numbers of the fields that it may have to their wire types; None allows all fields.

    >>> list(read_fields(b"\\x08\\x01\\x1a\\x02\\x08\\x01", {1: VARINT, 3: BYTES}, "the header"))
    [(1, 1), (3, b'\\x08\\x01')]
    """
    at, end = 0, len(message)
    while at < end:
        begin = at
        tag, at = read_varint(message, at)
        number, wire_type = tag >> 3, tag & 7
        if not number or wire_type not in (VARINT, FIXED64, BYTES, FIXED32):
            raise DamagedMessage(f"there is no record of {where} at byte {begin:,}")
        if wire_types is not None and wire_types.get(number) != wire_type:
            raise DamagedMessage(f"{where} has the unknown field {number}")
        value = SIZES.get(wire_type)
        if value is None:
            value, at = read_varint(message, at)
        if wire_type != VARINT:
            if value > end - at:
                raise DamagedMessage(f"a record of {where} at byte {begin:,} is truncated")
            value, at = message[at : at + value], at + value
            value = value if wire_type == BYTES else int.from_bytes(value, "little")
        yield number, value


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
