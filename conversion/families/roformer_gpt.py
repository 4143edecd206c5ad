"""RoFormer-GPT: the first version's variables, with a causal mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from . import roformer_v1
from .family import Family

if TYPE_CHECKING:
    from ...configuration import RoFormerConfig


def config(settings: Settings, vocabulary: Vocabulary) -> RoFormerConfig:
    """A decoder whose texts end with [SEP]."""
    return roformer_v1.config(
        settings, vocabulary, "RoFormerForCausalLM", is_decoder=True, eos_token_id=vocabulary.id_of("[SEP]")
    )


FAMILY = Family(
    name="gpt",
    title="RoFormer-GPT",
    config=config,
    weights=roformer_v1.weights,
    tokenizer=lambda config: {"add_sep_token": False},  # a prompt that ends with [SEP] has ended
)
