"""The families by name, and how to tell which one a checkpoint is of."""

from collections.abc import Collection

from . import roformer_gpt, roformer_sim, roformer_v1, roformer_v2
from .errors import CheckpointError
from .family import Family
from .settings import Settings

BUILT = {module.FAMILY.name: module.FAMILY for module in (roformer_v1, roformer_gpt, roformer_sim, roformer_v2)}

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
WAYS_OUT = {
    "sim": "--family sim converts it whole, --family roformer without its pooler",
    "gpt": "--family gpt converts it, and --family roformer if it is a plain RoFormer all the same",
    "v2": "--family v2 converts it",
    "wonezha": "--family roformer converts it, if it is a plain RoFormer all the same",
}

_WORDS = "bert/embeddings/word_embeddings"
_POSITIONS = "bert/embeddings/position_embeddings"


def choose(name: str, variables: Collection[str], settings: Settings, source: str, where: str) -> Family:
    """The family asked for or, for "auto", the one that the checkpoint shows itself to be.

    `source` is the name of the folder or archive it came in. Raises CheckpointError, which names the checkpoint as
    `where`, for a family that is not converted yet, or that must be asked for by name.
    """
    if name != AUTO:
        if name not in TITLES:
            raise CheckpointError(f"there is no family {name!r}: choose one of {', '.join((AUTO, *TITLES))}")
        if name not in BUILT:
            raise CheckpointError(f"{where} cannot be converted: {TITLES[name]} (--family {name}) is not supported yet")
        return BUILT[name]
    name, sign = recognise(variables, settings, source, where)
    if name != roformer_v1.FAMILY.name:
        trouble = "must be asked for by name" if name in BUILT else "is not supported yet"
        way_out = f"; {WAYS_OUT[name]}" if name in WAYS_OUT else ""
        raise CheckpointError(f"{where} is of {TITLES[name]} ({sign}), which {trouble}{way_out}")
    return BUILT[name]


def recognise(variables: Collection[str], settings: Settings, source: str, where: str) -> tuple[str, str]:
    """The family's name, and the sign by which it is known.

    RoFormer, RoFormer-GPT and WoNEZHA have the same variables; what tells them apart is how the released archives are
    called, and what some configurations say.
    """
    if _WORDS not in variables:
        first = ", ".join(sorted(variables)[:3]) or "none at all"
        raise CheckpointError(f"{where} is of no RoFormer: it has no variable {_WORDS} (its first ones: {first})")
    if _POSITIONS in variables:
        return "wobert", "it has a table of positions, as BERT has"
    called = f"{source} {settings.ignored.get('model_type', '')}".lower()
    if "nezha" in called or settings.ignored.get("use_relative_position"):
        return "wonezha", "its name or its configuration says so"
    encoder = [name for name in variables if name.startswith("bert/encoder/layer_")]
    if encoder and all(name.endswith("/kernel") for name in encoder):
        return "v2", "its layers have no biases and no layer norms"
    if any(name.startswith("bert/pooler/") for name in variables):
        return "sim", "it has a pooler and no table of positions"
    if "gpt" in called:
        return "gpt", "its name or its configuration says so"
    return "roformer", "it has neither a table of positions nor a pooler"
