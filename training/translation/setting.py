"""How a translation model is made and trained, as a YAML file says it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

import yaml

from ..errors import TrainingError


@dataclass(frozen=True)
class Setting:
    """A translation experiment; section 4.1 of the RoFormer paper has one.

    vocabulary_size: entries of the joint vocabulary.
    longest: most tokens of a sentence.
    batch_tokens: most tokens of the sources, and of the targets, that a device computes at once.
    steps: of the optimizer.
    warmup_steps: in which the learning rate rises from 0; from there it falls with the square root of the step.
    save_steps: between checkpoints, and measurements of the validation loss.
    model: fields of RoFormerSeq2SeqConfig.
    accumulation: batches that a step learns from.
    learning_rate: its highest value.
    label_smoothing: share of the probability that goes to all tokens alike.
    averaged: how many of the last checkpoints become the model.
    beams, length_penalty: of the search for a translation.

    Raises a TrainingError that names the field where it describes no experiment.
    """

    vocabulary_size: int
    longest: int
    batch_tokens: int
    steps: int
    warmup_steps: int
    save_steps: int
    model: Mapping = field(default_factory=dict)
    accumulation: int = 1
    learning_rate: float = 5e-4
    label_smoothing: float = 0.1
    averaged: int = 5
    beams: int = 4
    length_penalty: float = 0.6

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.type is int and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise TrainingError(f"{entry.name} is {value!r}, but must be a whole number above 0")
            if entry.type is float:
                if isinstance(value, str):  # YAML takes 5e-4 for text
                    with suppress(ValueError):
                        value = float(value)
                if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < float("inf"):
                    raise TrainingError(f"{entry.name} is {value!r}, but must be a number that is not below 0")
                object.__setattr__(self, entry.name, float(value))
        if not isinstance(self.model, Mapping):
            raise TrainingError(f"model is {self.model!r}, but must have fields, as {{d_model: 256}}")
        if self.label_smoothing >= 1:
            raise TrainingError(f"label_smoothing is {self.label_smoothing:g}, but must be below 1")
        if self.longest > self.batch_tokens:
            raise TrainingError(
                f"batch_tokens is {self.batch_tokens:,}, but a sentence may have {self.longest:,} tokens"
            )
        if self.averaged * self.save_steps > self.steps:
            raise TrainingError(
                f"averaged is {self.averaged}, but there are only {self.steps // self.save_steps} checkpoints: steps is "
                f"{self.steps:,}, save_steps {self.save_steps:,}"
            )


def read_setting(path: str | Path) -> Setting:
    """The experiment of a YAML file; raises a TrainingError that names the file and the field, or an OSError."""
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        raise TrainingError(f"{path}{f', line {where.line + 1}' if where else ''}: not YAML") from None
    if not isinstance(found, Mapping):
        raise TrainingError(f"{path} has no fields, as steps: 1000")
    known = {entry.name: entry for entry in fields(Setting)}
    if unknown := [str(name) for name in found if name not in known]:
        raise TrainingError(f"{path}: unknown field {', '.join(unknown)}; a setting has {', '.join(known)}")
    needed = [name for name, entry in known.items() if entry.default is MISSING and entry.default_factory is MISSING]
    if missing := [name for name in needed if name not in found]:
        raise TrainingError(f"{path} lacks the field {', '.join(missing)}")
    try:
        return Setting(**found)
    except TrainingError as error:
        raise TrainingError(f"{path}: {error}") from None
