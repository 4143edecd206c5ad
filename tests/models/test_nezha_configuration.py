"""NezhaConfig: what describes no model is refused, when it is made or when a model is."""

import pytest
from helpers.messages import refused
from test_nezha import SIZES

from modeling_roformer import NezhaConfig, NezhaModel


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"hidden_size": 30, "num_attention_heads": 4}, ["hidden_size", 30, "num_attention_heads", 4]),
        ({"hidden_size": 18}, ["hidden_size", 18, "num_attention_heads", 2]),
        ({"pad_token_id": 80}, ["pad_token_id", 80]),
        ({"is_decoder": True}, ["is_decoder", True, "NEZHA"]),
        ({"add_cross_attention": True}, ["add_cross_attention", True, "NEZHA"]),
        ({"attention_type": "linear"}, ["attention_type", "linear", "NEZHA"]),
    ],
)
def test_configs_that_describe_no_model(fields, facts):
    with refused(ValueError, *facts):
        NezhaConfig(**{**SIZES, **fields})


def test_a_config_that_became_wrong_later():
    config = NezhaConfig(**SIZES)
    config.num_attention_heads = 5
    with refused(ValueError, "num_attention_heads", 5):
        NezhaModel(config)
