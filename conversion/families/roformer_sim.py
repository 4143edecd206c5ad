"""RoFormer-Sim: the first version with a linear pooler over [CLS], and UniLM's mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from . import roformer_v1
from .family import Family, Weight, dense

if TYPE_CHECKING:
    from ...configuration import RoFormerConfig


def config(settings: Settings, vocabulary: Vocabulary) -> RoFormerConfig:
    """A prefix language model whose texts end with [SEP], with a pooler without activation."""
    return roformer_v1.config(
        settings,
        vocabulary,
        "RoFormerForCausalLM",
        is_decoder=True,
        prefix_lm=True,
        add_pooling_layer=True,
        pooler_activation="linear",
        eos_token_id=vocabulary.id_of("[SEP]"),
    )


def weights(config: RoFormerConfig) -> list[Weight]:
    """The first version's weights, and the pooler's."""
    pooler = dense("roformer.pooler.dense", "bert/pooler/dense", config.hidden_size, config.hidden_size)
    return [*roformer_v1.weights(config), *pooler]


FAMILY = Family(name="sim", title="RoFormer-Sim", config=config, weights=weights)
