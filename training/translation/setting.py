"""Settings of a translation experiment, read from a YAML file."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

from transformers import PreTrainedConfig

from ...seq2seq_configuration import RoFormerSeq2SeqConfig
from ..errors import FieldError, TrainingError
from ..runs.yaml_fields import LARGEST_RATE, check_integer, check_known, check_number, read_yaml

# Fields of the model that follow from the tokenizer, `longest` and --encodings, or have one value in a translation
# model.
SET_BY_SCRIPT = (
    "vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "max_position_embeddings",
    "position_encoding", "is_encoder_decoder",
)  # fmt: skip
_OF_ANY_CONFIG = {entry.name for entry in fields(PreTrainedConfig)}
MODEL_FIELDS = [
    entry.name for entry in fields(RoFormerSeq2SeqConfig) if entry.name not in {*SET_BY_SCRIPT, *_OF_ANY_CONFIG}
]


@dataclass(frozen=True)
class Setting:
    """Settings of a translation experiment, such as that of section 4.1 of the RoFormer paper.

    vocabulary_size: entries of the joint vocabulary.
    longest: maximum number of tokens of a sentence.
    batch_tokens: maximum number of source tokens, and of target tokens, that a device computes at once.
    steps: optimizer steps.
    warmup_steps: steps in which the learning rate rises from 0; after them it falls with the square root of the step.
    save_steps: steps between checkpoints, and between measurements of the validation loss.
    model: fields of RoFormerSeq2SeqConfig, of those in `MODEL_FIELDS`.
    accumulation: batches per step.
    learning_rate: maximum learning rate.
    label_smoothing: share of the probability that is spread over all tokens.
    averaged: number of last checkpoints whose average is the model.
    beams, length_penalty: beam search.

    Raises a FieldError for an invalid value.
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
            if entry.type is int:
                check_integer(entry.name, value, 1)
            if entry.type is float:
                object.__setattr__(self, entry.name, check_number(entry.name, value, 0))
        if not isinstance(self.model, Mapping):
            raise FieldError("model", f"is {self.model!r}; expected fields, such as {{d_model: 256}}")
        check_number("learning_rate", self.learning_rate, 0, LARGEST_RATE)
        if self.label_smoothing >= 1:
            raise FieldError("label_smoothing", f"is {self.label_smoothing:g}; expected below 1")
        if self.longest > self.batch_tokens:
            raise FieldError("batch_tokens", f"is {self.batch_tokens:,}; expected at least longest, {self.longest:,}")
        if self.averaged * self.save_steps > self.steps:
            made = self.steps // self.save_steps
            raise FieldError("averaged", f"is {self.averaged}, but steps and save_steps give only {made} checkpoints")


def read_setting(path: str | Path) -> Setting:
    """Read the settings of a YAML file. Raise a TrainingError that names the file, the line and the field, or an
    OSError."""
    found, lines = read_yaml(path)
    if not isinstance(found, dict):
        raise TrainingError(f"{path}: expected fields, such as steps: 1000")
    known = {entry.name: entry for entry in fields(Setting)}
    check_known(path, {name: lines[name,] for name in found}, known)
    needed = [name for name, entry in known.items() if entry.default is MISSING and entry.default_factory is MISSING]
    if missing := [name for name in needed if name not in found]:
        raise TrainingError(f"{path}: {', '.join(missing)} is missing")
    try:
        setting = Setting(**found)
    except FieldError as error:
        line = lines.get((error.field,), 1)  # a default may not fit the given values
        raise TrainingError(f"{path}, line {line}: {error}") from None
    of_model = {name: lines["model", name] for name in setting.model}
    if own := [name for name in of_model if name in SET_BY_SCRIPT]:
        raise TrainingError(
            f"{path}, line {of_model[own[0]]}, model: the script sets {', '.join(own)} itself; remove it"
        )
    check_known(path, of_model, MODEL_FIELDS, ", model")  # a config would keep an unknown field, without using it
    return setting
