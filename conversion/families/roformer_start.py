"""A RoFormer to be trained on from a BERT's weights, as RoFormer itself was from WoBERT's: all but the positions."""

from dataclasses import replace

from ..errors import CheckpointError
from . import roformer_v1, wobert, wonezha
from .family import POOLER, Family

TARGETS = ("roformer",)
BERTS = (wobert.FAMILY.name, wonezha.FAMILY.name)
NOTE = "a start, not a trained RoFormer: the weights of {title} without its positions, to be trained further"

_FAMILY = replace(roformer_v1.FAMILY, dropped={"bert/embeddings/position_embeddings": "table of positions", **POOLER})


def check_target(target: str | None) -> None:
    """Raises CheckpointError unless it is None or what a BERT can be written as."""
    if target not in (None, *TARGETS):
        raise CheckpointError(f"a checkpoint cannot be written as {target!r}: choose {' or '.join(TARGETS)}")


def start_from(family: Family, target: str, where: str) -> Family:
    """What a checkpoint of `family` is written as, where `--as target` asks for it.

    Raises CheckpointError, which names the checkpoint as `where`, for families that are no BERT.
    """
    check_target(target)
    if family.name not in BERTS:
        raise CheckpointError(
            f"{where} is of {family.title}, and --as {target} makes a RoFormer of a BERT (WoBERT, WoNEZHA): leave it out"
        )
    return _FAMILY
