"""The families by name, and how to tell which one a checkpoint is of."""

from collections.abc import Collection

from . import roformer_v1
from .errors import CheckpointError
from .family import Family
from .settings import Settings

BUILT = {family.name: family for family in (roformer_v1.FAMILY,)}

# What can be asked for with --family; those that are not in BUILT are refused by name.
TITLES = {
    "roformer": "RoFormer",
    "gpt": "RoFormer-GPT",
    "sim": "RoFormer-Sim",
    "v2": "RoFormer-V2",
    "wobert": "WoBERT",
    "wonezha": "WoNEZHA",
}
AUTO = "auto"

_WORDS = "bert/embeddings/word_embeddings"
_POSITIONS = "bert/embeddings/position_embeddings"


def choose(name: str, variables: Collection[str], settings: Settings, where: str) -> Family:
    """The family asked for or, for "auto", the one that the names of the variables show.

    RoFormer-GPT has RoFormer's own names, and is only found where it is asked for. Raises CheckpointError, naming the
    checkpoint as `where`, for a family that is not converted yet.
    """
    if name != AUTO:
        if name not in TITLES:
            raise CheckpointError(f"there is no family {name!r}: choose one of {', '.join((AUTO, *TITLES))}")
        if name not in BUILT:
            raise CheckpointError(f"{where} cannot be converted: {TITLES[name]} (--family {name}) is not supported yet")
        return BUILT[name]
    name, sign = recognise(variables, settings, where)
    if name not in BUILT:
        way_out = "; --family roformer converts it without its pooler" if name == "sim" else ""
        raise CheckpointError(f"{where} is of {TITLES[name]} ({sign}), which is not supported yet{way_out}")
    return BUILT[name]


def recognise(variables: Collection[str], settings: Settings, where: str) -> tuple[str, str]:
    """The family's name, and the sign by which it is known."""
    if _WORDS not in variables:
        first = ", ".join(sorted(variables)[:3]) or "none at all"
        raise CheckpointError(f"{where} is of no RoFormer: it has no variable {_WORDS} (its first ones: {first})")
    if _POSITIONS in variables:
        return "wobert", "it has a table of positions, as BERT has"
    if settings.ignored.get("use_relative_position"):
        return "wonezha", f"{settings.path.name} says use_relative_position"
    encoder = [name for name in variables if name.startswith("bert/encoder/layer_")]
    if encoder and all(name.endswith("/kernel") for name in encoder):
        return "v2", "its layers have no biases and no layer norms"
    if any(name.startswith("bert/pooler/") for name in variables):
        return "sim", "it has a pooler and no table of positions"
    return "roformer", "it has neither a table of positions nor a pooler"
