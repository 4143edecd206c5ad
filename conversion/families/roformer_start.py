"""A RoFormer that starts from a BERT's weights without its positions, as RoFormer itself started from WoBERT's."""

from dataclasses import replace

from ..errors import CheckpointError
from . import roformer_v1, simbert, wobert, wonezha
from .family import POOLER, Family

TARGETS = ("roformer",)
BERTS = (wobert.FAMILY.name, simbert.FAMILY.name, wonezha.FAMILY.name)
NOTE = "a starting point, not a trained RoFormer: the weights of {title} without its positions, for further training"

_FAMILY = replace(roformer_v1.FAMILY, note=NOTE, dropped={wobert.POSITIONS: "table of positions", **POOLER})


def start_from(family: Family, target: str, where: str) -> Family:
    """Return the family that a checkpoint of `family` becomes by `--as target`.

    Raises a CheckpointError for a family that is not a BERT. Its message names the checkpoint as `where`.
    """
    if family.name not in BERTS:
        raise CheckpointError(f"--as {target} needs a BERT (WoBERT, WoNEZHA), but {where} is a {family.title}")
    return _FAMILY
