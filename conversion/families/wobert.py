"""WoBERT, WoBERT Plus and any other BERT: transformers' own class, with the tokenizer that segments words."""

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from .bert_weights import bert_weights
from .family import POOLER, TABLE, Config, Family, Weight

POSITIONS = "bert/embeddings/position_embeddings"


def bert_fields(settings: Settings, vocabulary: Vocabulary) -> dict[str, object]:
    """Return the configuration fields of BERTs, whose embeddings are as wide as their hidden states."""
    values = {name: value for name, value in settings.values.items() if name != "embedding_size"}
    return {**values, "pad_token_id": vocabulary.id_of("[PAD]"), "layer_norm_eps": 1e-12}


def fields(settings: Settings, vocabulary: Vocabulary) -> dict:
    """Return the fields of transformers' `BertForMaskedLM`."""
    return {**bert_fields(settings, vocabulary), "architectures": ["BertForMaskedLM"]}


def weights(config: Config) -> list[Weight]:
    """Return every untied weight of BertForMaskedLM."""
    shape = (config.max_position_embeddings, config.hidden_size)
    positions = Weight("bert.embeddings.position_embeddings.weight", POSITIONS, shape)
    return [positions, *bert_weights(config, config.hidden_size, "bert")]


FAMILY = Family(
    name="wobert",
    title="WoBERT",
    fields=fields,
    weights=weights,
    base="bert",
    positions=TABLE,
    dropped=POOLER,  # BertForMaskedLM has none
    tokenizer=lambda config: {"model_max_length": config.max_position_embeddings},
    character_title="BERT",
)
