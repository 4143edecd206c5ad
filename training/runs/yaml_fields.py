"""The fields of a YAML file, read strictly: one that could mean something else is refused, with its line.

PyYAML follows YAML 1.1, in which `0512` is 330, `1:30` is 90, `no` is false and `1e-4` is text, and of a field that is given
twice it takes the last. Here numbers are decimal, `1e-4` is one of them, and every field is given once.
"""

import re
from pathlib import Path

import yaml

from ...tokenization.whole_file import read_bytes
from ..errors import TrainingError

MOST_BYTES = 1 << 20
DEEPEST = 20  # levels of lists and fields
MOST_DIGITS = 18  # what fits into 64 bits

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


Lines = dict[tuple[str | int, ...], int]  # the line of a value, by the names and numbers that lead to it


def read_yaml(path: str | Path) -> tuple[object, Lines]:
    """Return what a YAML file holds, in dicts, lists, str, int, float, bool and None, and the line of each of its values.

    The line of `{"stages": [{"steps": 3}]}`'s 3 is under `("stages", 0, "steps")`.

    Raises:
        TrainingError: one sentence with the file, the line and, where there is one, the field: the file is not YAML in
            UTF-8, or holds a field twice, a value that the versions of YAML read in different ways, an anchor, a tag, or a
            number of more than 18 digits.
        OSError: it cannot be read.
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
            raise _Refused(text.count("\n", 0, mark) + 1, "a byte order mark stands there: delete it")
        lines: Lines = {}
        return _value(_Composer(text).get_single_node(), (), lines), lines
    except _Refused as refused:
        raise TrainingError(f"{path}, line {refused.line}: {refused}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise TrainingError(f"{path}, line {line}: not YAML: it holds the character U+{error.character:04X}") from None
    except yaml.MarkedYAMLError as error:
        raise TrainingError(f"{path}, line {error.problem_mark.line + 1}: not YAML: {_problem(error, text)}") from None


class _Refused(Exception):
    """What is wrong in a line."""

    def __init__(self, line: int, sentence: str):
        super().__init__(sentence)
        self.line = line


class _Composer(yaml.SafeLoader):
    """Makes nodes of a text; refuses anchors, tags and deep nesting, before it follows any of them."""

    depth = 0

    def compose_node(self, parent, index):
        event = self.peek_event()
        line = event.start_mark.line + 1
        if self.depth > DEEPEST:
            raise _Refused(line, f"lists and fields are nested more than {DEEPEST} deep")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise _Refused(line, f"{sign}{event.anchor} is an anchor, which is not read here: write the value out")
        if event.tag is not None:
            tag = _short(event.tag.replace("tag:yaml.org,2002:", "!!"))
            raise _Refused(line, f"{tag} is a tag, which is not read here: write the value alone")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _value(node: yaml.Node | None, place: tuple[str | int, ...], lines: Lines) -> object:
    """What a node holds; `place` leads to it."""
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
            raise _Refused(_line(key), f"the name of a field must be text, but is {what}")
        if not field.isprintable():
            raise _Refused(_line(key), f"the name of a field is {_short(ascii(field))}, which cannot be printed")
        inner = (*place, field)
        if field in fields:
            raise _Refused(_line(key), f"{_short(field)} appears twice, first in line {lines[inner]}")
        fields[field] = _value(value, inner, lines)
        lines[inner] = _line(key)
    return fields


def _scalar(node: yaml.ScalarNode, what: str) -> object:
    """The value of a text, without which a sentence about it begins as `what`."""
    text, line = node.value, _line(node)
    if node.style is not None:  # in quotes, or a block
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
        raise _Refused(line, f"{what} {text}: write true or false, or put it in quotes where it is text")
    if _LIKE_A_NUMBER.match(text):
        raise _Refused(line, f"{what} {_short(text)}, which is no decimal number: write one, or put text in quotes")
    return text


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 50 else f"{text[:50]}…"


def _problem(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    if text[mark.index : mark.index + 1] == "\t":
        return "there is a tab, where YAML has spaces"
    if (error.problem or "").startswith("but found another document"):
        return "a second document begins"
    return " ".join((error.problem or error.context or "").split())
