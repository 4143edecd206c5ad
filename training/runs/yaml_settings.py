"""Settings in YAML files, read into dataclasses."""

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TypeVar, get_type_hints

import yaml

from modeling_roformer.model_cards.metadata import StrictLoader

from ..errors import TrainingError

T = TypeVar("T")


class _Loader(StrictLoader):
    """Loader that also reads 3e-3 as a number."""


_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(rf"{_NUMBER.pattern}$"), list("-+0123456789"))


def read_yaml(path: str | Path) -> object:
    """Return the content of a YAML file. Raise a TrainingError that names the file and the line, or an OSError."""
    try:
        return yaml.load(Path(path).read_text(encoding="utf-8-sig"), _Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise TrainingError(f"{path}{line}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or no date
        raise TrainingError(f"{path} is not YAML in UTF-8: {' '.join(str(error).split())}") from None


def to_dataclass(kind: type[T], found: object, where: str) -> T:
    """Return a dataclass made of fields that were read. Its `__post_init__` may raise a ValueError for a bad value.

    Raises a TrainingError that begins with `where` and names the field: it is unknown, missing, or has another type.
    """
    known, types = {field.name: field for field in fields(kind)}, get_type_hints(kind)
    if not isinstance(found, dict):
        raise TrainingError(f"{where}: found {found!r}; expected fields, such as {next(iter(known))}")
    for name, value in found.items():
        if name not in known:
            raise TrainingError(f"{where}: unknown field {name}; expected {', '.join(known)}")
        found_type, expected = type(value), types[name]
        is_number = (found_type, expected) == (int, float)
        if expected in (int, float, str, bool, dict) and found_type is not expected and not is_number:
            raise TrainingError(f"{where}: {name} is {value!r}; expected {expected.__name__}")
    needed = [name for name, field in known.items() if field.default is field.default_factory is MISSING]
    if missing := [name for name in needed if name not in found]:
        raise TrainingError(f"{where}: {', '.join(missing)} is missing")
    try:
        return kind(**found)
    except ValueError as error:
        raise TrainingError(f"{where}: {error}") from None
