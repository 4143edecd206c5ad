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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import yaml

from .errors import TrainingError

SCHEDULES = ("linear", "cosine", "constant")
OPTIMIZERS = ("adamw", "muon")


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

    Raises a TrainingError that names the field where it describes no stage.
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
        if not self.learning_rate > 0:
            raise TrainingError(f"learning_rate is {self.learning_rate:g}, but must be above 0")
        shares = self.masked if isinstance(self.masked, (list, tuple)) else [self.masked] * 2
        if len(shares) != 2:
            raise TrainingError(f"masked is {self.masked!r}, but must be a share, or two: [0.3, 0.15]")
        self._put("masked", tuple(_number("masked", share) for share in shares))
        if not all(0 < share < 1 for share in self.masked):
            raise TrainingError(
                f"masked is {shares[0] if shares[0] == shares[1] else shares}, but must be between 0 and 1"
            )
        for name in ("warmup", "weight_decay"):
            self._put(name, _number(name, getattr(self, name)))
            if not 0 <= getattr(self, name) <= 1:
                raise TrainingError(f"{name} is {getattr(self, name):g}, but must be from 0 to 1")
        for name, choices in ("schedule", SCHEDULES), ("optimizer", OPTIMIZERS):
            if getattr(self, name) not in choices:
                raise TrainingError(f"{name} is {getattr(self, name)!r}, but must be one of {', '.join(choices)}")

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def to_dict(self) -> dict:
        """As JSON holds it."""
        return {**asdict(self), "masked": list(self.masked)}


def read_stages(path: str | Path) -> list[Stage]:
    """The stages of a YAML file.

    Raises:
        TrainingError: it is no such file; the sentence names the stage and the field.
        OSError: it cannot be read.
    """
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        raise TrainingError(f"{path}{f', line {where.line + 1}' if where else ''}: not YAML") from None
    if not isinstance(found, dict) or not isinstance(found.get("stages"), list) or not found["stages"]:
        raise TrainingError(f"{path} lists no stages: it needs a list under the name stages")
    if unknown := sorted(map(str, set(found) - {"defaults", "stages"})):
        raise TrainingError(f"{path}: unknown field {', '.join(unknown)}; a stage list has defaults and stages")
    defaults = found.get("defaults") or {}
    return [_stage(entry, defaults, f"{path}, stage {i}") for i, entry in enumerate(found["stages"], 1)]


def _stage(entry: object, defaults: object, where: str) -> Stage:
    for given, place in (defaults, "defaults"), (entry, "it"):
        if not isinstance(given, Mapping):
            raise TrainingError(f"{where}: {place} must have fields, as {{length: 512}}, but is {given!r}")
    given = {**defaults, **entry}
    known = [field.name for field in fields(Stage)]
    if unknown := [str(name) for name in given if name not in known]:
        raise TrainingError(f"{where}: unknown field {', '.join(unknown)}; a stage has {', '.join(known)}")
    if missing := [name for name in known[:4] if name not in given]:
        raise TrainingError(f"{where}: no {', '.join(missing)}")
    try:
        return Stage(**given)
    except TrainingError as error:
        raise TrainingError(f"{where}: {error}") from None


def _number(name: str, value: object) -> float:
    """YAML 1.1 takes 1e-4 for text."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise TrainingError(f"{name} is {value!r}, but must be a number")
    return number


def _whole_number(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TrainingError(f"{name} is {value!r}, but must be a whole number of at least {least}")
    return value
