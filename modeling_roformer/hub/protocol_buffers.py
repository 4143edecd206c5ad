"""Protocol buffers, read by a table of the fields that are wanted, without the package protobuf.

A message is a sequence of records: a varint with the field's number and the wire type of the value, then the value, which
for the wire type BYTES begins with its length. See https://protobuf.dev/programming-guides/encoding. Every length is
compared with what is left of the message, and a varint has at most 10 bytes, so a damaged file costs neither memory nor time.
"""

from collections.abc import Mapping
from typing import Protocol

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4, groups, are of the past
SIZES = {FIXED64: 8, FIXED32: 4}
LONGEST_VARINT = 10  # bytes: 64 bits, 7 in each
MOST_NESTED = 100  # messages, as for every parser of protocol buffers

# What a field can hold beside another message: integers, a string, or bytes, of which the place is given. Of values that may
# be many, one after the other in one record, it is only said that they are there.
NUMBER, TEXT, PLACE = "number", "text", "place"
MANY_INTEGERS, MANY_FLOATS, MANY_DOUBLES, MANY_STRINGS = "integers", "floats", "doubles", "strings"
WIDTHS = {MANY_INTEGERS: 1, MANY_FLOATS: 4, MANY_DOUBLES: 8, MANY_STRINGS: 1}
Tables = Mapping[str, Mapping[int, tuple[str, str]]]


class Data(Protocol):
    """Bytes, or a file that is mapped into memory."""

    def __getitem__(self, at): ...


class DamagedMessage(ValueError):
    """A message that is not whole."""


def read_message(data: Data, start: int, end: int, tables: Tables, kind: str, depth: int = 0) -> dict[str, list]:
    """The values of each field of a message, by the field's name; of a field that is not there, nothing.

    Args:
        data: where the message is, from `start` to `end`.
        tables: for each kind of message, the number of each field, its name, and what it holds: the name of another kind
            of message, or one of the constants above. Fields that have no entry are skipped.
        kind: of the message.

    Raises:
        DamagedMessage: a record is cut off, is longer than its message, or is none.
    """
    if depth > MOST_NESTED:
        raise DamagedMessage(f"more than {MOST_NESTED} messages are nested")
    found: dict[str, list] = {}
    at = start
    while at < end:
        begin = at
        tag, at = _varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        name, holds = tables[kind].get(number, ("", ""))
        if number and wire_type == VARINT:
            value, at = _varint(data, at, end)
        elif number and wire_type in (FIXED64, BYTES, FIXED32):
            length, at = (SIZES[wire_type], at) if wire_type in SIZES else _varint(data, at, end)
            if length > end - at:
                raise DamagedMessage(f"a record of {kind} at byte {begin:,} is cut off")
            value, at = (at, at + length), at + length
        else:
            raise DamagedMessage(f"there is no record of {kind} at byte {begin:,}")
        if holds in WIDTHS:
            if wire_type == BYTES and not _are_whole(data, *value, holds):
                raise DamagedMessage(f"the {holds} of {kind} at byte {begin:,} are cut off")
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
            found.setdefault(name, []).append(read_message(data, *value, tables, holds, depth + 1))
    return found


def _are_whole(data: Data, start: int, end: int, holds: str) -> bool:
    if holds == MANY_INTEGERS:
        return start == end or data[end - 1] < 0x80  # where a varint ends
    return (end - start) % WIDTHS[holds] == 0


def _packed(data: Data, start: int, end: int) -> list[int]:
    numbers = []
    while start < end:
        number, start = _varint(data, start, end)
        numbers.append(_signed(number))
    return numbers


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """The number at a place, 7 bits a byte from the lowest, and the place after it."""
    value = 0
    for count in range(min(LONGEST_VARINT, end - at)):
        byte = data[at + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80 and value < 1 << 64:
            return value, at + count + 1
    raise DamagedMessage(f"there is no whole number at byte {at:,}")
