"""WoNEZHA: a BERT with computed relative positions, and so with the variables of RoFormer's first version."""

import numpy as np

from ..errors import CheckpointError
from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from ..formats.dtypes import cast
from ..formats.source import Source
from .bert_weights import bert_weights
from .family import POOLER, Config, Family, Weight
from .wobert import bert_fields

MAX_RELATIVE_POSITION = 64  # bert4keras' value, which is in no file
# Keras saves this table with the weights, although it is computed and never trained.
RELATIVE_POSITIONS = "bert/embeddings/relative_position_embeddings"
TOLERANCE = 1e-4  # Keras' own table comes from angles in float32


def config(settings: Settings, vocabulary: Vocabulary) -> Config:
    """Return the configuration of a NEZHA without a pooler; bert_config.json may set its max_relative_position."""
    from ...nezha_configuration import NezhaConfig

    return NezhaConfig(
        **bert_fields(settings, vocabulary),
        max_relative_position=settings.size("max_relative_position", MAX_RELATIVE_POSITION),
        bos_token_id=None,
        eos_token_id=None,
        add_pooling_layer=False,
        architectures=["NezhaForMaskedLM"],
    )


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of NezhaForMaskedLM."""
    return bert_weights(config, config.hidden_size, "nezha")


def computed_positions(source: Source, settings: Settings) -> dict[str, str]:
    """Return the table of relative positions, if the source has one, with its title in the summary.

    Raises CheckpointError unless it is the table that NEZHA computes here.
    """
    entry = source.entries.get(RELATIVE_POSITIONS)
    if entry is None:
        return {}
    import torch

    from ...nezha_attention import relative_position_embeddings

    max_relative_position = settings.size("max_relative_position", MAX_RELATIVE_POSITION)
    head_dim = settings.values["hidden_size"] // settings.values["num_attention_heads"]
    expected, _ = relative_position_embeddings(torch.arange(1)[None], head_dim, max_relative_position)
    if entry.shape != tuple(expected.shape):
        raise CheckpointError(
            f"{source.path} does not match {settings.path.name}: its relative positions have shape {entry.shape}, but "
            f"the configuration implies {tuple(expected.shape)}"
        )
    found = cast(source.read(RELATIVE_POSITIONS), entry.dtype, "float64")
    if not np.abs(found - expected.numpy()).max() < TOLERANCE:
        raise CheckpointError(f"{source.path} has relative positions that are not NEZHA's sines and cosines")
    return {RELATIVE_POSITIONS: "relative positions, which are computed"}


FAMILY = Family(
    name="wonezha", title="WoNEZHA", character_title="NEZHA", config=config, weights=weights, dropped=POOLER
)
