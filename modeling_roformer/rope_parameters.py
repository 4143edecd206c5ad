"""RoPE's fields in a configuration: their defaults and checks."""

from collections.abc import Mapping
from typing import Any

ROPE_TYPES = ("default", "linear", "dynamic", "yarn")
PAPER_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
# The current field, and the fields of older configs.
ROPE_FIELDS = ("rope_parameters", "rope_scaling", "rope_theta")


def rope_of(fields: Mapping[str, Any]) -> dict[str, Any]:
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


def complete_rope(parameters: dict[str, Any] | None) -> dict[str, Any]:
    """Return `rope_parameters` with the paper's as defaults; raise a ValueError that names an invalid field."""
    parameters = rope_of({"rope_parameters": parameters})
    rope_type = parameters["rope_type"]
    if rope_type not in ROPE_TYPES:
        raise ValueError(f"rope_type is {rope_type!r}, but must be one of {', '.join(ROPE_TYPES)}")
    allowed = {"rope_type", "rope_theta", "original_max_position_embeddings"}
    if rope_type != "default":
        allowed.add("factor")
        factor = parameters.get("factor")
        if not isinstance(factor, (int, float)) or factor < 1:
            raise ValueError(f"rope_parameters of type {rope_type!r} have factor {factor!r}; expected at least 1")
    if rope_type == "yarn":
        allowed |= {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}
    if rope_type in ("dynamic", "yarn"):
        length = parameters.get("original_max_position_embeddings")
        if not isinstance(length, int) or length < 1:
            raise ValueError(
                f"rope_parameters of type {rope_type!r} have original_max_position_embeddings {length!r}; expected the "
                "length in tokens that the model was trained at"
            )
    if unknown := sorted(set(parameters) - allowed):
        raise ValueError(f"rope_parameters of type {rope_type!r} have unknown fields: {', '.join(unknown)}")
    if not parameters["rope_theta"] > 1:
        raise ValueError(f"rope_theta is {parameters['rope_theta']!r}, but must be greater than 1")
    return parameters
