"""Strict reader of YAML files: ambiguous values are refused, with their line.

PyYAML follows YAML 1.1: `0512` is 330, `1:30` is 90, `no` is false, `1e-4` is text, and the last of two equal fields
wins. Here numbers are decimal, `1e-4` is a number, and a field may appear once.
"""

import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import yaml

from ...tokenization.vocabulary import read_bytes
from ..errors import FieldError, TrainingError

MOST_BYTES = 1 << 20
DEEPEST = 20  # levels of lists and fields
MOST_DIGITS = 18  # these fit into 64 bits
LARGEST = 2**31 - 1  # of a length, a batch size, steps, …
# A step of AdamW changes each weight by about its learning rate, and weights start at about 0.02.
LARGEST_RATE = 1

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OTHER_BOOLEANS = re.compile(r"y|yes|n|no|on|off", re.IGNORECASE)  # of YAML 1.1
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_WHOLE = re.compile(rf"[-+]?(?:0|(?!0){_DIGITS})")
_DECIMAL = re.compile(
    rf"[-+]?(?:(?:0|(?!0){_DIGITS})(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][-+]?[0-9]{{1,{MOST_DIGITS}}})?"
)
_SPECIAL = re.compile(r"([-+]?)\.(inf|nan)", re.IGNORECASE)
_LIKE_A_NUMBER = re.compile(r"[-+.]*[0-9]")


Lines = dict[tuple[str | int, ...], int]  # path of names and indices to a value -> its line


def read_yaml(path: str | Path) -> tuple[object, Lines]:
    """Return the content of a YAML file as dicts, lists, str, int, float, bool and None, and the line of each value.

    The line of the 3 in `{"stages": [{"steps": 3}]}` has the key `("stages", 0, "steps")`.

    Raises a TrainingError that names file, line and field: the file is not YAML in UTF-8, or has a field twice, a value
    that versions of YAML read differently, an anchor, a tag, or a number of more than 18 digits.
    """
    try:
        data = read_bytes(path, MOST_BYTES)
    except ValueError as error:
        raise TrainingError(f"{path}: {error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise TrainingError(f"{path}, line {line}: not UTF-8") from None
    try:
        mark = text.find("\ufeff")
        if mark >= 0:
            raise _Refused(text.count("\n", 0, mark) + 1, "delete the byte order mark in this line")
        lines: Lines = {}
        return _value(_Composer(text).get_single_node(), (), lines), lines
    except _Refused as refused:
        raise TrainingError(f"{path}, line {refused.line}: {refused}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise TrainingError(f"{path}, line {line}: not YAML: character U+{error.character:04X}") from None
    except yaml.MarkedYAMLError as error:
        raise TrainingError(f"{path}, line {error.problem_mark.line + 1}: not YAML: {_problem(error, text)}") from None


class _Refused(Exception):
    """Error in a line of the file."""

    def __init__(self, line: int, sentence: str):
        super().__init__(sentence)
        self.line = line


class _Composer(yaml.SafeLoader):
    """Loader that refuses anchors, tags and deep nesting before it constructs anything."""

    depth = 0

    def compose_node(self, parent, index):
        event = self.peek_event()
        line = event.start_mark.line + 1
        if self.depth > DEEPEST:
            raise _Refused(line, f"lists and fields are nested more than {DEEPEST} deep")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise _Refused(line, f"{sign}{event.anchor} is an anchor, which is not supported: write the value itself")
        if event.tag is not None:
            tag = _short(event.tag.replace("tag:yaml.org,2002:", "!!"))
            raise _Refused(line, f"{tag} is a tag, which is not supported: write the value without it")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _value(node: yaml.Node | None, place: tuple[str | int, ...], lines: Lines) -> object:
    """Return the value of a node. `place` is its path."""
    if node is None:
        return None
    lines[place] = _line(node)
    if isinstance(node, yaml.SequenceNode):
        return [_value(entry, (*place, i), lines) for i, entry in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, next((f"{_short(name)} is" for name in reversed(place) if isinstance(name, str)), "it is"))
    fields = {}
    for key, value in node.value:
        field = _scalar(key, "the name of a field is") if isinstance(key, yaml.ScalarNode) else None
        if not isinstance(field, str):
            what = repr(_short(key.value)) if isinstance(key, yaml.ScalarNode) else "a list or fields"
            raise _Refused(_line(key), f"the name of a field is {what}; expected text")
        if not field.isprintable():
            raise _Refused(_line(key), f"the name of a field is {_short(ascii(field))}, which is not printable")
        inner = (*place, field)
        if field in fields:
            raise _Refused(_line(key), f"{_short(field)} appears twice, first in line {lines[inner]}")
        fields[field] = _value(value, inner, lines)
        lines[inner] = _line(key)
    return fields


def _scalar(node: yaml.ScalarNode, what: str) -> object:
    """Return the value of a scalar. Messages about it begin with `what`."""
    text, line = node.value, _line(node)
    if node.style is not None:  # quoted, or a block
        return text
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _WHOLE.fullmatch(text):
        if sum(map(str.isdigit, text)) > MOST_DIGITS:
            raise _Refused(line, f"{what} {_short(text)}, a number of more than {MOST_DIGITS} digits")
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    if special := _SPECIAL.fullmatch(text):
        return float("".join(special.groups()))
    if _OTHER_BOOLEANS.fullmatch(text):
        raise _Refused(line, f"{what} {text}: write true or false, or quote it if it is text")
    if _LIKE_A_NUMBER.match(text):
        raise _Refused(line, f"{what} {_short(text)}, which is not a decimal number: quote it if it is text")
    return text


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 50 else f"{text[:50]}…"


def _problem(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    if text[mark.index : mark.index + 1] == "\t":
        return "indent with spaces, not with a tab"
    if (error.problem or "").startswith("but found another document"):
        return "expected one document, found a second"
    return " ".join((error.problem or error.context or "").split())


def check_known(path: str | Path, lines: Mapping[str, int], known: Collection[str], place: str = "") -> None:
    """Raise a TrainingError if a field is unknown. `lines` has the line of each field, `place` follows it in the
    message."""
    if unknown := [name for name in lines if name not in known]:
        where = f"{path}, line {lines[unknown[0]]}{place}"
        raise TrainingError(f"{where}: unknown field {', '.join(unknown)}; expected {', '.join(known)}")


def check_integer(name: str, value: object, least: int) -> int:
    """Return the value of a field if it is an integer from `least` to `LARGEST`. Raise a FieldError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise FieldError(name, f"is {value!r}; expected an integer of at least {least}")
    return _at_most(name, value, LARGEST)


def check_number(name: str, value: object, least: float = -math.inf, most: int = LARGEST) -> float:
    """Return the value of a field as a float if it is a number from `least` to `most`. Raise a FieldError otherwise."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and value >= least):  # NaN is not
        raise FieldError(name, f"is {value!r}; expected a number{f' of at least {least}' if least > -math.inf else ''}")
    return float(_at_most(name, value, most))


def _at_most(name: str, value: float, most: int) -> float:
    if value > most:  # a long integer cannot be printed
        raise FieldError(name, f"is above the maximum of {most:,}")
    return value
