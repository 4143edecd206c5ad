"""WoNEZHA: a BERT with computed relative positions, and so with the variables of RoFormer's first version."""

import numpy as np

from ..errors import CheckpointError
from ..formats.dtypes import cast
from ..formats.source import Source
from .bert_weights import bert_weights
from .family import POOLER, RELATIVE, Config, Family
from .weights import Weight

MAX_RELATIVE_POSITION = 64  # bert4keras' value; the files do not have it
# Keras saves this table with the weights, although it is computed and never trained.
RELATIVE_POSITIONS = "bert/embeddings/relative_position_embeddings"
TOLERANCE = 1e-4  # Keras' own table comes from angles in float32


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of NezhaForMaskedLM."""
    return bert_weights(config, config.hidden_size, "nezha")


def computed(source: Source) -> dict[str, str]:
    """Return the table of relative positions, if the source has one, with its title in the summary."""
    if RELATIVE_POSITIONS not in source.entries:
        return {}
    return {RELATIVE_POSITIONS: "relative positions, which are computed"}


def check_values(source: Source, config: Config) -> None:
    """Raise CheckpointError if the source has a table of relative positions other than the one computed here."""
    entry = source.entries.get(RELATIVE_POSITIONS)
    if entry is None:
        return
    import torch

    from modeling_roformer.nezha import relative_position_embeddings

    head_dim = config.hidden_size // config.num_attention_heads
    expected, _ = relative_position_embeddings(torch.arange(1)[None], head_dim, config.max_relative_position)
    found = cast(source.read(RELATIVE_POSITIONS), entry.dtype, "float64")
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=0, atol=TOLERANCE):
        raise CheckpointError(
            f"{source.path} has relative positions of shape {found.shape} that are not NEZHA's sines and cosines of "
            f"shape {tuple(expected.shape)}, which max_relative_position implies"
        )


FAMILY = Family(
    name="wonezha",
    title="WoNEZHA",
    weights=weights,
    fields={"max_relative_position": MAX_RELATIVE_POSITION, "add_pooling_layer": False},
    base="nezha",
    positions=RELATIVE,
    ends={"bos_token_id": None, "eos_token_id": None},
    dropped=POOLER,
    character_title="NEZHA",
    computed=computed,
    check_values=check_values,
)
