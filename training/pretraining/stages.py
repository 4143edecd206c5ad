"""The stages of a pre-training, as a YAML file lists them.

```yaml
defaults:              # of every stage; may be left out
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
from ..runs.yaml_fields import Lines, read_yaml

SCHEDULES = ("linear", "cosine", "constant")
OPTIMIZERS = ("adamw", "muon")
MOST = 2**31 - 1  # of a length, a batch or the steps
# A step of AdamW changes each weight by about its learning rate, and weights begin around 0.02.
MOST_RATE = 1.0


@dataclass(frozen=True)
class Stage:
    """One stage: so many steps at one length.

    length: most tokens of a piece, [CLS] and [SEP] among them.
    batch_size: pieces that a step learns from, on all devices together.
    steps: of the optimizer.
    learning_rate: its highest value.
    masked: share of the words that are masked, or the two between which it goes evenly from the first step to the last.
    warmup: share of the steps in which the learning rate rises from 0.
    schedule: how it falls after that: linear or cosine, to 0, or constant.
    weight_decay: on weights, not on biases and norms.
    optimizer: adamw, or muon, which is Muon for the layers' matrices and AdamW for the rest (see `MuonAndAdamW`).

    Raises a FieldError where it describes no stage.
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
            self._put(name, _whole_number(name, getattr(self, name), least))
        self._put("learning_rate", _number("learning_rate", self.learning_rate))
        if not 0 < self.learning_rate <= MOST_RATE:
            raise FieldError(
                "learning_rate", f"is {self.learning_rate:g}, but must be above 0, and at most {MOST_RATE:g}"
            )
        shares = self.masked if isinstance(self.masked, (list, tuple)) else [self.masked] * 2
        if len(shares) != 2:
            raise FieldError("masked", f"is {self.masked!r}, but must be a share, or two: [0.3, 0.15]")
        self._put("masked", tuple(_number("masked", share) for share in shares))
        if not all(0 < share < 1 for share in self.masked):
            raise FieldError(
                "masked", f"is {shares[0] if shares[0] == shares[1] else shares}, but must be between 0 and 1"
            )
        for name in ("warmup", "weight_decay"):
            self._put(name, _number(name, getattr(self, name)))
            if not 0 <= getattr(self, name) <= 1:
                raise FieldError(name, f"is {getattr(self, name):g}, but must be from 0 to 1")
        for name, choices in ("schedule", SCHEDULES), ("optimizer", OPTIMIZERS):
            if getattr(self, name) not in choices:
                raise FieldError(name, f"is {getattr(self, name)!r}, but must be one of {', '.join(choices)}")

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def to_dict(self) -> dict:
        """As JSON holds it."""
        return {**asdict(self), "masked": list(self.masked)}


def read_stages(path: str | Path) -> list[Stage]:
    """Return the stages of a YAML file, which `read_yaml` reads.

    Raises:
        TrainingError: it is no such file; the sentence names the line, the stage and the field.
        OSError: it cannot be read.
    """
    found, lines = read_yaml(path)
    if not isinstance(found, dict) or not isinstance(found.get("stages"), list) or not found["stages"]:
        raise TrainingError(f"{path} lists no stages: it needs a list under the name stages")
    if unknown := [name for name in found if name not in ("defaults", "stages")]:
        where = f"{path}, line {lines[unknown[0],]}"
        raise TrainingError(f"{where}: unknown field {', '.join(unknown)}; a stage list has defaults and stages")
    return [_stage(path, found, lines, i) for i in range(len(found["stages"]))]


def _stage(path: str | Path, found: dict, lines: Lines, i: int) -> Stage:
    """Stage `i` of a file, counted from 0."""

    def where(*place: str | int) -> str:
        return f"{path}, line {lines[place]}, stage {i + 1}"

    defaults, entry = found.get("defaults"), found["stages"][i]
    if defaults is None:
        defaults = {}
    for given, place, name in (defaults, ("defaults",), "defaults"), (entry, ("stages", i), "it"):
        if not isinstance(given, dict):
            raise TrainingError(f"{where(*place)}: {name} must have fields, as {{length: 512}}, but is {given!r}")
    places = {name: ("defaults", name) for name in defaults} | {name: ("stages", i, name) for name in entry}
    known = [field.name for field in fields(Stage)]
    if unknown := [name for name in places if name not in known]:
        raise TrainingError(
            f"{where(*places[unknown[0]])}: unknown field {', '.join(unknown)}; a stage has {', '.join(known)}"
        )
    if missing := [name for name in known[:4] if name not in places]:
        raise TrainingError(f"{where('stages', i)}: no {', '.join(missing)}")
    try:
        return Stage(**defaults | entry)
    except FieldError as error:
        raise TrainingError(f"{where(*places[error.field])}: {error}") from None


def _number(name: str, value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise FieldError(name, f"is {value!r}, but must be a number")
    return number


def _whole_number(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise FieldError(name, f"is {value!r}, but must be a whole number of at least {least}")
    if value > MOST:
        raise FieldError(name, f"is above {MOST:,}")
    return value
