"""Fields of a saved configuration: RoPE's, with their defaults and checks, and the model type.

The model type is chosen so that plain transformers refuses what it would compute wrongly. Nothing here imports
transformers, so that commands can inspect a folder quickly.
"""

from collections.abc import Mapping
from typing import Any

# Plain transformers knows the first one only. `RoFormerConfig` reads the first three.
MODEL_TYPE = "roformer"
MODEL_TYPE_V2 = "roformer_v2"
MODEL_TYPE_EXTENDED = "roformer_x"
MODEL_TYPE_SEQ2SEQ = "roformer_seq2seq"
MODEL_TYPES = (MODEL_TYPE, MODEL_TYPE_V2, MODEL_TYPE_EXTENDED)
_TRAINED_LENGTH = "original_max_position_embeddings"
# The fields that each `rope_type` needs beside `rope_theta`, and those that it may have.
_NEEDED = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor", _TRAINED_LENGTH),
    "yarn": ("factor", _TRAINED_LENGTH),
}
_OPTIONAL = {"yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")}
PAPER_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
# The current field, and the fields of older configs.
ROPE_FIELDS = ("rope_parameters", "rope_scaling", "rope_theta")


def read_rope(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `rope_parameters` of a configuration under their current names, with the paper's as defaults."""
    parameters = dict(fields.get("rope_scaling") or fields.get("rope_parameters") or {})
    if (theta := fields.get("rope_theta")) is not None:
        parameters.setdefault("rope_theta", theta)
    if "type" in parameters:
        parameters.setdefault("rope_type", parameters.pop("type"))
    return {**PAPER_ROPE, **parameters}


def is_paper_rope(parameters: Mapping[str, Any]) -> bool:
    """Return whether complete `rope_parameters` are the paper's."""
    return all(parameters[name] == PAPER_ROPE[name] for name in PAPER_ROPE)


def checked_rope(parameters: dict[str, Any] | None) -> dict[str, Any]:
    """Return `rope_parameters` with the paper's as defaults; raise a ValueError for a wrong field."""
    parameters = read_rope({"rope_parameters": parameters})
    rope_type = parameters["rope_type"]
    if rope_type not in _NEEDED:
        raise ValueError(f"rope_type is {rope_type!r}, but must be one of {', '.join(_NEEDED)}")
    for name in ("rope_theta", *_NEEDED[rope_type]):
        value = parameters.get(name)
        if not isinstance(value, (int, float)) or not value >= 1:  # also NaN
            raise ValueError(f"rope_parameters of type {rope_type!r} have {name} {value!r}; expected at least 1")
    allowed = {*PAPER_ROPE, _TRAINED_LENGTH, *_NEEDED[rope_type], *_OPTIONAL.get(rope_type, ())}
    if unknown := sorted(set(parameters) - allowed):
        raise ValueError(f"rope_parameters of type {rope_type!r} have unknown fields: {', '.join(unknown)}")
    return parameters


def saved_model_type(fields: Mapping[str, object]) -> str:
    """Return the model_type to save a configuration under: "roformer" only if plain transformers computes it correctly.

    >>> saved_model_type({"norm_type": "rms_norm", "use_bias": False})
    'roformer_v2'
    """
    if fields.get("position_encoding", "rotary") != "rotary" or fields.get("attention_type", "softmax") != "softmax":
        return MODEL_TYPE_EXTENDED
    if fields.get("norm_type", "layer_norm") != "layer_norm" or not fields.get("use_bias", True):
        return MODEL_TYPE_V2
    if fields.get("prefix_lm") or fields.get("trainable_rope") or not is_paper_rope(read_rope(fields)):
        return MODEL_TYPE_EXTENDED
    activation = fields.get("classifier_activation")
    if fields.get("classifier_layers", 2) != 2 or activation not in (None, fields.get("hidden_act", "gelu")):
        return MODEL_TYPE_EXTENDED
    return MODEL_TYPE
