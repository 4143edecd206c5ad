"""Stages of a pre-training, read from a YAML file.

```yaml
defaults:              # for every stage; optional
  learning_rate: 1e-4
stages:
  - {length: 512, batch_size: 256, steps: 200_000}
  - {length: 1536, batch_size: 256, steps: 12_500, masked: [0.3, 0.15]}
```
"""

import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ..errors import FieldError, TrainingError
from ..runs.yaml_fields import LARGEST_RATE, Lines, check_integer, check_known, check_number, read_yaml

SCHEDULES = ("linear", "cosine", "constant")
OPTIMIZERS = ("adamw", "muon")
USUAL_LENGTH = 512
USUAL_STEPS, USUAL_EPOCHS = 1_000, 10  # fewer steps teach a fresh model little


@dataclass(frozen=True)
class Stage:
    """Stage of a pre-training: a number of steps at one length.

    length: maximum number of tokens of a piece, including [CLS] and [SEP].
    batch_size: pieces per step, on all devices together.
    steps: optimizer steps.
    learning_rate: maximum learning rate.
    masked: share of masked words, or two shares: it changes linearly from the first step to the last.
    warmup: share of the steps in which the learning rate rises from 0.
    schedule: after the warm-up: linear or cosine, to 0, or constant.
    weight_decay: on weights, not on biases and norms.
    optimizer: adamw, or muon: Muon for the layers' matrices and AdamW for the rest (see `MuonAndAdamW`).

    Raises a FieldError for an invalid value.
    """

    length: int
    batch_size: int
    steps: int
    learning_rate: float
    masked: tuple[float, float] = (0.15, 0.15)
    warmup: float = 0.05
    schedule: str = "linear"
    weight_decay: float = 0.01
    optimizer: str = "adamw"

    def __post_init__(self) -> None:
        for name, least in ("length", 3), ("batch_size", 1), ("steps", 1):
            check_integer(name, getattr(self, name), least)
        for name, most in ("learning_rate", LARGEST_RATE), ("warmup", 1), ("weight_decay", 1):
            object.__setattr__(self, name, check_number(name, getattr(self, name), 0, most))
        if self.learning_rate == 0:
            raise FieldError("learning_rate", "is 0; expected a number above 0")
        shares = self.masked if isinstance(self.masked, (list, tuple)) else [self.masked] * 2
        if len(shares) != 2:
            raise FieldError("masked", f"is {self.masked!r}; expected a share, or two: [0.3, 0.15]")
        object.__setattr__(self, "masked", tuple(check_number("masked", share) for share in shares))
        if not all(0 < share < 1 for share in self.masked):
            given = shares[0] if shares[0] == shares[1] else shares
            raise FieldError("masked", f"is {given}; expected between 0 and 1")
        for name, choices in ("schedule", SCHEDULES), ("optimizer", OPTIMIZERS):
            if getattr(self, name) not in choices:
                raise FieldError(name, f"is {getattr(self, name)!r}; expected one of {', '.join(choices)}")

    def to_dict(self) -> dict:
        """Return the fields as JSON values."""
        return {**asdict(self), "masked": list(self.masked)}


def usual_stage(pieces: int, hidden_size: int, epochs: int | None = None) -> Stage:
    """Return a stage for a corpus with a number of pieces of USUAL_LENGTH tokens, and a model of a width.

    Wider models need lower learning rates: 1e-3 up to a width of 256, and 1.1e-4 for 768. Without `epochs`, it has 10
    epochs, and at least 1,000 steps.
    """
    batch_size = 32
    steps = math.ceil((epochs or USUAL_EPOCHS) * pieces / batch_size)
    rate = float(f"{min(1e-3, 1e-3 * (256 / hidden_size) ** 2):.1e}")
    return Stage(USUAL_LENGTH, batch_size, steps if epochs else max(steps, USUAL_STEPS), rate)


def read_stages(path: str | Path) -> list[Stage]:
    """Read the stages of a YAML file. Raise a TrainingError that names file, line, stage and field, or an OSError."""
    found, lines = read_yaml(path)
    if not isinstance(found, dict) or not isinstance(found.get("stages"), list) or not found["stages"]:
        raise TrainingError(f"{path}: expected a list with the name stages")
    check_known(path, {name: lines[name,] for name in found}, ("defaults", "stages"))
    return [_stage(path, found, lines, i) for i in range(len(found["stages"]))]


def _stage(path: str | Path, found: dict, lines: Lines, i: int) -> Stage:
    """Return stage `i` of a file, counted from 0."""

    def where(*place: str | int) -> str:
        return f"{path}, line {lines[place]}, stage {i + 1}"

    defaults, entry = found.get("defaults"), found["stages"][i]
    if defaults is None:
        defaults = {}
    for given, place, name in (defaults, ("defaults",), "defaults"), (entry, ("stages", i), "it"):
        if not isinstance(given, dict):
            raise TrainingError(f"{where(*place)}: {name} is {given!r}; expected fields, such as {{length: 512}}")
    places = {name: ("defaults", name) for name in defaults} | {name: ("stages", i, name) for name in entry}
    known = [field.name for field in fields(Stage)]
    check_known(path, {name: lines[place] for name, place in places.items()}, known, f", stage {i + 1}")
    if missing := [name for name in known[:4] if name not in places]:
        raise TrainingError(f"{where('stages', i)}: {', '.join(missing)} is missing")
    try:
        return Stage(**defaults | entry)
    except FieldError as error:
        raise TrainingError(f"{where(*places[error.field])}: {error}") from None
