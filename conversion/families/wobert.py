"""WoBERT, WoBERT Plus and any other BERT: transformers' own class, with the tokenizer that segments words."""

from .bert_weights import bert_weights
from .family import POOLER, TABLE, Config, Family
from .weights import Weight, weight

POSITIONS = "bert/embeddings/position_embeddings"


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of BertForMaskedLM."""
    length, width = config.max_position_embeddings, config.hidden_size
    return [weight("bert.embeddings.position_embeddings.weight", length, width), *bert_weights(config, width, "bert")]


FAMILY = Family(
    name="wobert",
    title="WoBERT",
    weights=weights,
    base="bert",
    positions=TABLE,
    dropped=POOLER,  # BertForMaskedLM has none
    tokenizer=lambda config: {"model_max_length": config.max_position_embeddings},
    character_title="BERT",
)
