"""RoFormer-V2: without biases and norm parameters; its MLM head is the product with the word embeddings."""

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from . import roformer_v1
from .bert_weights import embeddings
from .family import Config, Family, Weight, dense


def config(settings: Settings, vocabulary: Vocabulary) -> Config:
    """Return the configuration of the first version, except for norms and biases."""
    return roformer_v1.config(settings, vocabulary, norm_type="rms_norm", use_bias=False)


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of RoFormerForMaskedLM."""
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
