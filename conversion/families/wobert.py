"""WoBERT, WoBERT Plus and any other BERT: transformers' own class, with the tokenizer that segments words."""

from .bert_weights import bert_weights
from .family import POOLER, TABLE, Config, Family, Weight

POSITIONS = "bert/embeddings/position_embeddings"


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of BertForMaskedLM."""
    shape = (config.max_position_embeddings, config.hidden_size)
    positions = Weight("bert.embeddings.position_embeddings.weight", POSITIONS, shape)
    return [positions, *bert_weights(config, config.hidden_size, "bert")]


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
