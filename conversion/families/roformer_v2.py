"""RoFormer-V2: no biases, no parameters in its norms, and an MLM head that is the product with the word embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from . import roformer_v1
from .bert_weights import embeddings
from .family import Family, Weight, dense

if TYPE_CHECKING:
    from ...configuration import RoFormerConfig


def config(settings: Settings, vocabulary: Vocabulary) -> RoFormerConfig:
    """As in the first version, except for norms and biases."""
    return roformer_v1.config(settings, vocabulary, norm_type="rms_norm", use_bias=False)


def weights(config: RoFormerConfig) -> list[Weight]:
    """Every untied weight of RoFormerForMaskedLM."""
    embedding, hidden, inner = config.embedding_size, config.hidden_size, config.intermediate_size
    found = embeddings(config, embedding)
    if embedding != hidden:
        found += dense("roformer.embeddings_project", "bert/encoder/embedding_hidden_mapping_in", embedding, hidden)
    for i in range(config.num_hidden_layers):
        key, variable = f"roformer.encoder.layer.{i}", f"bert/encoder/layer_{i}"
        for part, inputs, outputs in (
            ("attention/self/query", hidden, hidden),
            ("attention/self/key", hidden, hidden),
            ("attention/self/value", hidden, hidden),
            ("attention/output/dense", hidden, hidden),
            ("intermediate/dense", hidden, inner),
            ("output/dense", inner, hidden),
        ):
            found += dense(f"{key}.{part.replace('/', '.')}", f"{variable}/{part}", inputs, outputs, bias=False)
    return found


FAMILY = Family(name="v2", title="RoFormer-V2", config=config, weights=weights)
