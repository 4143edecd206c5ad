"""The bert_config.json of a legacy checkpoint, checked and translated to RoFormerConfig's fields."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from modeling_roformer.files.reading import read_json
from modeling_roformer.model_cards.kinds import architecture_of

from ..errors import CheckpointError

# Names that bert4keras also accepts, and prefers to BERT's own.
ALIASES = {
    "max_position": "max_position_embeddings",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "segment_vocab_size": "type_vocab_size",
}
REQUIRED_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
OPTIONAL_SIZES = {"embedding_size": None, "max_position_embeddings": 512, "type_vocab_size": 2}
RATES = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.02}

# Activations: names of bert4keras and Keras -> transformers. bert4keras' gelu is the exact one, with erf.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_erf": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "linear": "linear",
}

# Arguments of bert4keras, which it also reads from the file: no model here computes the same with them.
NOT_SUPPORTED = {
    "residual_attention_scores": "each layer adds the attention scores of the layer below",
    "shared_segment_embeddings": "segments have the embeddings of tokens",
}

_TYPES = {int: "an integer", str: "a string", dict: "an object"}


@dataclass(frozen=True)
class Settings:
    """The fields of a configuration: `values` under RoFormerConfig's names, and the fields `ignored` here."""

    path: Path
    values: dict[str, int | float | str | None]
    ignored: dict[str, object]

    def size(self, name: str) -> int:
        """Return an ignored field, which only some families use; raise CheckpointError if it is not a size."""
        return _size(self.path, self.ignored, name)


def read_fields(path: Path, default: dict | None = None, encoding: str = "utf-8-sig") -> dict:
    """Return the fields of a JSON file as `reading.read_json` does; raise CheckpointError if that fails."""
    try:
        return read_json(path, default, encoding=encoding)
    except ValueError as error:
        raise CheckpointError(str(error)) from None


def check_types(path: Path, fields: dict, types: Mapping[type, Iterable[str]]) -> None:
    """Raise CheckpointError if a field of a file (`path`) that is set has another type than it must have."""
    for wanted, names in types.items():
        for name in names:
            if fields.get(name) is not None and type(fields[name]) is not wanted:
                raise CheckpointError(f"{path}: {name} must be {_TYPES[wanted]}, but is {_shown(fields, name)}")


def class_of(path: Path, fields: dict) -> str | None:
    """Return the class that the field `architectures` of a file (`path`) names; None if it is not set."""
    if not fields.get("architectures"):
        return None
    named = architecture_of(fields)
    if named is None:
        shown = _shown(fields, "architectures")
        raise CheckpointError(f"{path}: architectures must be a list with the name of a class, but is {shown}")
    return named


def read_settings(path: Path) -> Settings:
    """Read a bert_config.json; raise CheckpointError if it is broken or does not describe a model."""
    raw = read_fields(path)
    check_types(path, raw, {str: ("hidden_act", "application", "exported_as")})
    written = {name: alias for alias, name in ALIASES.items() if alias in raw}  # name -> the name in the file
    values = {name: _size(path, raw, name) for name in REQUIRED_SIZES}
    for name, default in OPTIONAL_SIZES.items():
        field = written.get(name, name)
        least = 0 if name == "type_vocab_size" else 1  # bert4keras has models without segments
        values[name] = default if raw.get(field) is None else _size(path, raw, field, least)
    for name, default in RATES.items():
        rate = raw.get(written.get(name, name))
        values[name] = default if rate is None else rate
    act = raw.get("hidden_act")
    if act not in ACTIVATIONS:
        raise CheckpointError(f"{path}: hidden_act is {act!r}, but must be one of {', '.join(ACTIVATIONS)}")
    values["hidden_act"] = ACTIVATIONS[act]
    head_size = values["hidden_size"] // values["num_attention_heads"]
    for name in ("attention_head_size", "attention_key_size"):
        if raw.pop(name, None) not in (None, head_size):
            raise CheckpointError(f"{path}: {name} is not hidden_size / num_attention_heads, which is not supported")
    for name, meaning in NOT_SUPPORTED.items():
        if raw.get(name):
            raise CheckpointError(f"{path}: {name} is {_shown(raw, name)} ({meaning}), which is not supported")
    return Settings(path, values, {key: value for key, value in raw.items() if key not in {**values, **ALIASES}})


def _size(path: Path, raw: dict, name: str, least: int = 1) -> int:
    value = raw.get(name)
    if type(value) is not int or value < least:
        raise CheckpointError(f"{path}: {name} must be an integer of at least {least}, but is {_shown(raw, name)}")
    return value


def _shown(raw: dict, name: str) -> str:
    return json.dumps(raw[name])[:40] if name in raw else "missing"
