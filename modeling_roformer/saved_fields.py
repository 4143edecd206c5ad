"""Fields of a saved configuration: RoPE's, with their defaults and checks, and the model type.

The model type is chosen so that plain transformers refuses what it would compute wrongly. Nothing here imports
transformers, so that commands can inspect a folder quickly.
"""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

# Plain transformers knows the first one only. `RoFormerConfig` reads the first three.
MODEL_TYPE = "roformer"
MODEL_TYPE_V2 = "roformer_v2"
MODEL_TYPE_EXTENDED = "roformer_x"
MODEL_TYPE_SEQ2SEQ = "roformer_seq2seq"
MODEL_TYPES = (MODEL_TYPE, MODEL_TYPE_V2, MODEL_TYPE_EXTENDED)
ROPE_TYPES = ("default", "linear", "dynamic", "yarn")
PAPER_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
# The current field, and the fields of older configs.
ROPE_FIELDS = ("rope_parameters", "rope_scaling", "rope_theta")


def rope_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `rope_parameters` of a configuration under their current names, with the paper's as defaults."""
    parameters = fields.get("rope_scaling") or fields.get("rope_parameters") or {}
    if not isinstance(parameters, Mapping):
        raise ValueError(f"rope_parameters are {parameters!r}, but must be a dict, such as {PAPER_ROPE}")
    parameters = dict(parameters)
    if (theta := fields.get("rope_theta")) is not None:
        parameters.setdefault("rope_theta", theta)
    if "type" in parameters:
        parameters.setdefault("rope_type", parameters.pop("type"))
    return {**PAPER_ROPE, **parameters}


def is_paper_rope(parameters: Mapping[str, Any]) -> bool:
    """Return whether complete `rope_parameters` are the paper's."""
    return all(parameters[name] == PAPER_ROPE[name] for name in PAPER_ROPE)


def is_number(value: Any, low: float, high: float = math.inf) -> bool:
    """Return whether a value is a finite number, no boolean, from `low` to `high`."""
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and low <= value <= min(high, sys.float_info.max)


def complete_rope(parameters: dict[str, Any] | None) -> dict[str, Any]:
    """Return `rope_parameters` with the paper's as defaults; raise a ValueError that names an invalid field."""
    parameters = rope_of({"rope_parameters": parameters})
    rope_type = parameters["rope_type"]
    if rope_type not in ROPE_TYPES:
        raise ValueError(f"rope_type is {rope_type!r}, but must be one of {', '.join(ROPE_TYPES)}")

    def check(name: str, is_right: Callable[[Any], bool], expected: str) -> None:
        if not is_right(value := parameters.get(name)):
            raise ValueError(f"rope_parameters of type {rope_type!r} have {name} {value!r}; expected {expected}")

    allowed = {"rope_type", "rope_theta", "original_max_position_embeddings"}
    check("rope_theta", lambda value: is_number(value, 1) and value > 1, "a number greater than 1")
    if rope_type != "default":
        allowed.add("factor")
        check("factor", lambda value: is_number(value, 1), "a number of at least 1")
    if rope_type == "yarn":
        positive, others = ("attention_factor", "beta_fast", "beta_slow"), ("mscale", "mscale_all_dim")
        allowed |= {*positive, *others, "truncate"}
        for name in positive:
            check(name, lambda value: value is None or (is_number(value, 0) and value > 0), "a number greater than 0")
        slow = parameters.get("beta_slow") or 1
        check("beta_fast", lambda value: (value or 32) >= slow, f"at least beta_slow, {slow}")
        for name in others:
            check(name, lambda value: value is None or is_number(value, 0), "a number of at least 0")
        check("truncate", lambda value: value is None or isinstance(value, bool), "True or False")
    if rope_type in ("dynamic", "yarn"):
        check(
            "original_max_position_embeddings",
            lambda value: isinstance(value, int) and is_number(value, 1),
            "the length in tokens that the model was trained at",
        )
    if unknown := sorted(map(str, set(parameters) - allowed)):
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
    if fields.get("prefix_lm") or fields.get("trainable_rope") or not is_paper_rope(rope_of(fields)):
        return MODEL_TYPE_EXTENDED
    activation = fields.get("classifier_activation")
    if fields.get("classifier_layers", 2) != 2 or activation not in (None, fields.get("hidden_act", "gelu")):
        return MODEL_TYPE_EXTENDED
    return MODEL_TYPE
