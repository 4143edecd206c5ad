"""RoFormer, the first version, word- or character-level, with its MLM head."""

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from .bert_weights import bert_weights
from .family import POOLER, Config, Family, Weight

# Plain transformers has a table of positions and fails beyond its end; computed positions have no limit.
PLAIN_TRANSFORMERS_POSITIONS = 1536


def config(settings: Settings, vocabulary: Vocabulary, architecture: str = "RoFormerForMaskedLM", **fields) -> Config:
    """Return the new configuration; the vocabulary gives the padding id, and must have MLM's special tokens."""
    from ...configuration import RoFormerConfig

    special = vocabulary.special_ids()
    values = dict(settings.values)
    values["max_position_embeddings"] = max(values["max_position_embeddings"], PLAIN_TRANSFORMERS_POSITIONS)
    return RoFormerConfig(
        **values, pad_token_id=special["[PAD]"], architectures=[architecture], layer_norm_eps=1e-12, **fields
    )


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of RoFormerForMaskedLM and of RoFormerForCausalLM."""
    return bert_weights(config, config.embedding_size)


FAMILY = Family(
    name="roformer",
    title="RoFormer",
    config=config,
    weights=weights,
    # Only used if the family is given: otherwise, such a checkpoint is detected as RoFormer-Sim.
    dropped=POOLER,
)
