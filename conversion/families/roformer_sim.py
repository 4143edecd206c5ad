"""RoFormer-Sim: the first version with a linear pooler over [CLS], and UniLM's mask."""

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from . import roformer_v1
from .family import UNILM, Config, Family, Weight, dense

# The configuration's fields of a prefix language model with a linear pooler.
OWN_FIELDS = {"is_decoder": True, "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"}


def fields(settings: Settings, vocabulary: Vocabulary) -> dict:
    """Return the configuration's fields of a prefix language model whose texts end with [SEP], with a linear pooler."""
    ends = FAMILY.end_ids(vocabulary.id_of)
    return roformer_v1.fields(settings, vocabulary, "RoFormerForCausalLM", **OWN_FIELDS, **ends)


def weights(config: Config) -> list[Weight]:
    """Return the first version's weights, and the pooler's."""
    pooler = dense("roformer.pooler.dense", "bert/pooler/dense", config.hidden_size, config.hidden_size)
    return [*roformer_v1.weights(config), *pooler]


FAMILY = Family(
    name="sim",
    title="RoFormer-Sim",
    fields=fields,
    weights=weights,
    mask=UNILM,
    ends={"eos_token_id": "[SEP]"},
)
