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
from dataclasses import dataclass
from pathlib import Path

from ..errors import TrainingError
from ..runs.yaml_settings import read_yaml, to_dataclass

CHOICES = {"schedule": ("linear", "cosine", "constant"), "optimizer": ("adamw", "muon")}
USUAL_LENGTH = 512
USUAL_STEPS, USUAL_EPOCHS = 1_000, 10  # fewer steps teach a fresh model little


@dataclass
class Stage:
    """Stage of a pre-training: a number of steps at one length.

    length: maximum number of tokens of a piece, including [CLS] and [SEP].
    batch_size: pieces per step, on all devices together.
    steps: optimizer steps.
    learning_rate: maximum learning rate.
    masked: share of masked words, or two shares: it changes linearly from the first step to the last.
    warmup: share of the steps that raise the learning rate from 0.
    schedule: after the warm-up: linear or cosine, to 0, or constant.
    weight_decay: on weights, not on biases and norms.
    optimizer: adamw, or muon: Muon for the layers' matrices and AdamW for the rest (see `MuonAndAdamW`).

    Raises a ValueError that names the field for an invalid value.
    """

    length: int
    batch_size: int
    steps: int
    learning_rate: float
    masked: float | list[float] = 0.15
    warmup: float = 0.05
    schedule: str = "linear"
    weight_decay: float = 0.01
    optimizer: str = "adamw"

    def __post_init__(self) -> None:
        self.masked = list(self.masked) if isinstance(self.masked, (list, tuple)) else [self.masked] * 2
        numbers = all(isinstance(share, float) for share in self.masked)
        if len(self.masked) != 2 or not numbers or not all(0 < share < 1 for share in self.masked):
            raise ValueError(f"masked is {self.masked}; expected a share between 0 and 1, or two: [0.3, 0.15]")
        # A step of AdamW changes each weight by about its learning rate, and weights start at about 0.02.
        for name, most in ("learning_rate", 1), ("warmup", 1), ("weight_decay", 1):
            if not 0 <= getattr(self, name) <= most or (name == "learning_rate" and not self.learning_rate):
                raise ValueError(f"{name} is {getattr(self, name)}; expected a number from 0 to {most}")
        for name, least in ("length", 3), ("batch_size", 1), ("steps", 1):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least {least}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(choices)}")

    def __str__(self) -> str:
        """Return the fields that differ from the defaults, as in a file of stages."""
        usual = vars(Stage(self.length, self.batch_size, self.steps, self.learning_rate))
        shown = {name: value for i, (name, value) in enumerate(vars(self).items()) if i < 4 or value != usual[name]}
        values = (
            f"{name}: {value:g}" if isinstance(value, float) else f"{name}: {value}" for name, value in shown.items()
        )
        return f"{{{', '.join(values)}}}"


def usual_stage(pieces: int, hidden_size: int, epochs: int | None = None) -> Stage:
    """Return a stage for a corpus with a number of pieces of `USUAL_LENGTH` tokens, and a model of a width.

    Wider models need lower learning rates: 1e-3 up to a width of 256, and 1.1e-4 for 768. Without `epochs`, it has 10
    epochs, and at least 1,000 steps.
    """
    batch_size = 32
    steps = math.ceil((USUAL_EPOCHS if epochs is None else epochs) * pieces / batch_size)
    rate = float(f"{min(1e-3, 1e-3 * (256 / hidden_size) ** 2):.1e}")
    return Stage(USUAL_LENGTH, batch_size, max(steps, USUAL_STEPS) if epochs is None else steps, rate)


def read_stages(path: str | Path) -> list[Stage]:
    """Read the stages of a YAML file. Raise a TrainingError that names file, stage and field, or an OSError."""
    found = read_yaml(path)
    if not isinstance(found, dict) or not isinstance(found.get("stages"), list) or not found["stages"]:
        raise TrainingError(f"{path}: expected a list with the name stages")
    if unknown := found.keys() - {"defaults", "stages"}:
        raise TrainingError(f"{path}: unknown field {', '.join(map(str, unknown))}; expected defaults, stages")
    defaults = found.get("defaults") or {}
    if not isinstance(defaults, dict):
        raise TrainingError(f"{path}: defaults is {defaults!r}; expected fields, such as {{learning_rate: 1e-4}}")
    return [
        to_dataclass(Stage, defaults | stage if isinstance(stage, dict) else stage, f"{path}, stage {number}")
        for number, stage in enumerate(found["stages"], 1)
    ]
