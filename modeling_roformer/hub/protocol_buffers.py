"""Protocol buffers, read and written without the package protobuf.

A message is a sequence of records: a varint `number << 3 | wire_type`, then the value: a varint (wire type 0), 8 bytes
(1), a length and as many bytes (2), or 4 bytes (5): https://protobuf.dev/programming-guides/encoding. A damaged file
costs neither memory nor time: every length is compared with the rest of the message, and a varint has at most 10 bytes.
"""

from collections.abc import Iterator, Mapping
from mmap import mmap
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4, groups, are obsolete
SIZES = {FIXED64: 8, FIXED32: 4}
LONGEST_VARINT = 10  # bytes: 64 bits, 7 in each
MOST_NESTED = 100  # messages, as for every parser of protocol buffers

# The content of a field that is not a message: integers, a string, or bytes, whose place is returned. For the repeated
# values, the result is only [True].
NUMBER, TEXT, PLACE = "number", "text", "place"
MANY_INTEGERS, MANY_FLOATS, MANY_DOUBLES, MANY_STRINGS = "integers", "floats", "doubles", "strings"
WIDTHS = {MANY_INTEGERS: 1, MANY_FLOATS: 4, MANY_DOUBLES: 8, MANY_STRINGS: 1}
Tables = Mapping[str, Mapping[int, tuple[str, str]]]
Data = bytes | mmap


class DamagedMessage(ValueError):
    """A message that is truncated, or is not a message."""


def read_varint(data: Data, at: int, end: int, shortest: bool = False) -> tuple[int, int]:
    """Return the unsigned integer at a position, 7 bits a byte from the lowest, and the position after it.

    With `shortest`, only the shortest form is accepted, which is what every encoder writes.

    >>> read_varint(b"\\xac\\x02", 0, 2)
    (300, 2)
    """
    byte = data[at] if at < end else 0x80
    if byte < 0x80:  # most are of one byte
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    for place in range(at + 1, min(at + LONGEST_VARINT, end)):
        byte = data[place]
        if byte < 0x80:
            value |= byte << shift
            if value >> 64 or (shortest and byte == 0):
                break
            return value, place + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    raise DamagedMessage(f"there is no integer at byte {at:,}")


def _read_records(
    data: Data, start: int, end: int, kind: str, shortest: bool = False
) -> Iterator[tuple[int, int, int, Any]]:
    """Yield position, number, wire type and value of each record; all but a varint's value are (start, end)."""
    at = start
    while at < end:
        begin = at
        tag, at = read_varint(data, at, end, shortest)
        number, wire_type = tag >> 3, tag & 7
        if not number or wire_type not in (VARINT, FIXED64, BYTES, FIXED32):
            raise DamagedMessage(f"there is no record of {kind} at byte {begin:,}")
        value = SIZES.get(wire_type)
        if value is None:
            value, at = read_varint(data, at, end, shortest)
        if wire_type != VARINT:
            if value > end - at:
                raise DamagedMessage(f"a record of {kind} at byte {begin:,} is truncated")
            value, at = (at, at + value), at + value
        yield begin, number, wire_type, value


def read_message(data: Data, start: int, end: int, tables: Tables, kind: str, depth: int = 0) -> dict[str, list]:
    """Return the values of each field of a message, by the field's name; fields that the message lacks are left out.

    Args:
        data: the message is from `start` to `end`.
        tables: kind of message -> number of each field -> its name and content, which is another kind of message or
            one of the constants above. Fields without an entry are skipped.
        kind: the kind of this message.

    Raises:
        DamagedMessage: a record is truncated, is longer than its message, or is not a record.
    """
    if depth > MOST_NESTED:
        raise DamagedMessage(f"more than {MOST_NESTED} messages are nested")
    found: dict[str, list] = {}
    for begin, number, wire_type, value in _read_records(data, start, end, kind):
        name, holds = tables[kind].get(number, ("", ""))
        if holds in WIDTHS:
            if wire_type == BYTES and not _are_whole(data, value[0], value[1], holds):
                raise DamagedMessage(f"the {holds} of {kind} at byte {begin:,} are truncated")
            found[name] = [True]
        elif holds == NUMBER and wire_type == VARINT:
            found.setdefault(name, []).append(_signed(value))
        elif not holds or wire_type != BYTES:  # a value of another wire type is skipped, as an unknown field is
            continue
        elif holds == NUMBER:
            found.setdefault(name, []).extend(_packed(data, *value))
        elif holds == TEXT:
            found.setdefault(name, []).append(bytes(data[slice(*value)]).decode("utf-8", "replace"))
        elif holds == PLACE:
            found.setdefault(name, []).append(value)
        else:
            found.setdefault(name, []).append(read_message(data, value[0], value[1], tables, holds, depth + 1))
    return found


def read_fields(message: bytes, kinds: Mapping[int, int] | None, where: str) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message that may only have the fields `kinds`: number -> wire type.

    None allows all fields. Only the shortest form of a varint is accepted: no two byte strings then mean the same.

    >>> list(read_fields(b"\\x08\\x01\\x1a\\x02\\x08\\x01", {1: VARINT, 3: BYTES}, "the header"))
    [(1, 1), (3, b'\\x08\\x01')]
    """
    for _, number, wire_type, value in _read_records(message, 0, len(message), where, True):
        if kinds is not None and kinds.get(number) != wire_type:
            raise DamagedMessage(f"{where} has the unknown field {number}")
        if wire_type != VARINT:
            value = message[value[0] : value[1]]
            value = value if wire_type == BYTES else int.from_bytes(value, "little")
        yield number, value


def write_varint(value: int) -> bytes:
    """Return the shortest varint of an unsigned integer.

    >>> write_varint(300)
    b'\\xac\\x02'
    """
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


def _are_whole(data: Data, start: int, end: int, holds: str) -> bool:
    if holds == MANY_INTEGERS:
        return start == end or data[end - 1] < 0x80  # the last byte of a varint
    return (end - start) % WIDTHS[holds] == 0


def _packed(data: Data, start: int, end: int) -> list[int]:
    numbers = []
    while start < end:
        number, start = read_varint(data, start, end)
        numbers.append(_signed(number))
    return numbers


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
