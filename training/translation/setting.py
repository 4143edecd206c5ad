"""How a translation model is made and trained, as a YAML file says it."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

from ..errors import FieldError, TrainingError
from ..pretraining.stages import MOST_RATE
from ..runs.yaml_fields import read_yaml

MOST = 2**31 - 1  # of any number


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

    Raises a FieldError where it describes no experiment.
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
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if is_number and value > MOST:
                raise FieldError(entry.name, f"is above {MOST:,}")
            if entry.type is int and not (is_number and isinstance(value, int) and value > 0):
                raise FieldError(entry.name, f"is {value!r}, but must be a whole number above 0")
            if entry.type is float:
                if not (is_number and value >= 0):
                    raise FieldError(entry.name, f"is {value!r}, but must be a number that is not below 0")
                object.__setattr__(self, entry.name, float(value))
        if not isinstance(self.model, Mapping):
            raise FieldError("model", f"is {self.model!r}, but must have fields, as {{d_model: 256}}")
        if self.learning_rate > MOST_RATE:
            raise FieldError("learning_rate", f"is {self.learning_rate:g}, but must be at most {MOST_RATE:g}")
        if self.label_smoothing >= 1:
            raise FieldError("label_smoothing", f"is {self.label_smoothing:g}, but must be below 1")
        if self.longest > self.batch_tokens:
            raise FieldError(
                "batch_tokens", f"is {self.batch_tokens:,}, but a sentence may have {self.longest:,} tokens"
            )
        if self.averaged * self.save_steps > self.steps:
            raise FieldError(
                "averaged",
                f"is {self.averaged}, but there are only {self.steps // self.save_steps} checkpoints: steps is "
                f"{self.steps:,}, save_steps {self.save_steps:,}",
            )


def read_setting(path: str | Path) -> Setting:
    """Return the experiment of a YAML file, which `read_yaml` reads.

    Raises a TrainingError that names the file, the line and the field, or an OSError.
    """
    found, lines = read_yaml(path)
    if not isinstance(found, dict):
        raise TrainingError(f"{path} has no fields, as steps: 1000")
    known = {entry.name: entry for entry in fields(Setting)}
    if unknown := [name for name in found if name not in known]:
        where = f"{path}, line {lines[unknown[0],]}"
        raise TrainingError(f"{where}: unknown field {', '.join(unknown)}; a setting has {', '.join(known)}")
    needed = [name for name, entry in known.items() if entry.default is MISSING and entry.default_factory is MISSING]
    if missing := [name for name in needed if name not in found]:
        raise TrainingError(f"{path} lacks the field {', '.join(missing)}")
    try:
        return Setting(**found)
    except FieldError as error:
        line = lines.get((error.field,), 1)  # a default may not fit to what is given
        raise TrainingError(f"{path}, line {line}: {error}") from None
