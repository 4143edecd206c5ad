"""RoFormer, the first version, word- or character-level, with its MLM head."""

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from .bert_weights import bert_weights
from .family import POOLER, Config, Family, Weight

# Plain transformers has a table of positions and fails beyond its end; computed positions have no limit.
PLAIN_TRANSFORMERS_POSITIONS = 1536


def fields(settings: Settings, vocabulary: Vocabulary, architecture: str = "RoFormerForMaskedLM", **more) -> dict:
    """Return the configuration's fields; the vocabulary gives the padding id."""
    return {
        **settings.values,
        "max_position_embeddings": max(settings.values["max_position_embeddings"], PLAIN_TRANSFORMERS_POSITIONS),
        "pad_token_id": vocabulary.id_of("[PAD]"),
        "architectures": [architecture],
        "layer_norm_eps": 1e-12,
        **more,
    }


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of RoFormerForMaskedLM and of RoFormerForCausalLM."""
    return bert_weights(config, config.embedding_size or config.hidden_size)


# A pooler is only dropped if the family is given: otherwise, such a checkpoint is detected as RoFormer-Sim.
FAMILY = Family("roformer", "RoFormer", fields, weights, dropped=POOLER)
