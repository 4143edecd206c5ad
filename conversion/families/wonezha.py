"""WoNEZHA: a BERT whose positions are relative and computed, so it has the variables of RoFormer's first version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from .bert_weights import bert_weights
from .family import POOLER, Family, Weight
from .wobert import bert_fields

if TYPE_CHECKING:
    from ...nezha_configuration import NezhaConfig

MAX_RELATIVE_POSITION = 64  # bert4keras' value, which is in no file


def config(settings: Settings, vocabulary: Vocabulary) -> NezhaConfig:
    """A NEZHA without a pooler; bert_config.json may set its max_relative_position."""
    from ...nezha_configuration import NezhaConfig

    return NezhaConfig(
        **bert_fields(settings, vocabulary),
        max_relative_position=settings.size("max_relative_position", MAX_RELATIVE_POSITION),
        bos_token_id=None,
        eos_token_id=None,
        add_pooling_layer=False,
        architectures=["NezhaForMaskedLM"],
    )


def weights(config: NezhaConfig) -> list[Weight]:
    """Every untied weight of NezhaForMaskedLM."""
    return bert_weights(config, config.hidden_size, "nezha")


FAMILY = Family(
    name="wonezha", title="WoNEZHA", character_title="NEZHA", config=config, weights=weights, dropped=POOLER
)
