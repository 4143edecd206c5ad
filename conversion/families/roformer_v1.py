"""RoFormer, the first version, word- or character-level, with its MLM head."""

from .bert_weights import bert_weights
from .family import POOLER, Config, Family
from .weights import Weight


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of RoFormerForMaskedLM and of RoFormerForCausalLM."""
    return bert_weights(config, config.embedding_size or config.hidden_size)


# A pooler is only dropped if the family is given: otherwise, such a checkpoint is detected as RoFormer-Sim.
FAMILY = Family("roformer", "RoFormer", weights, dropped=POOLER)
