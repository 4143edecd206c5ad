"""RoFormer-Sim: the first version with a linear pooler over [CLS], and UniLM's mask. Its texts end with [SEP]."""

from . import roformer_v1
from .family import UNILM, Config, Family
from .weights import Weight, dense


def weights(config: Config) -> list[Weight]:
    """Return the first version's weights, and the pooler's."""
    pooler = dense("roformer.pooler.dense", config.hidden_size, config.hidden_size)
    return [*roformer_v1.weights(config), *pooler]


FAMILY = Family(
    name="sim",
    title="RoFormer-Sim",
    weights=weights,
    fields={"add_pooling_layer": True, "pooler_activation": "linear"},
    mask=UNILM,
    ends={"eos_token_id": "[SEP]"},
)
