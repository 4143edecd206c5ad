"""NezhaConfig: what describes no model is refused, when it is made or when a model is."""

import pytest
from helpers.messages import refused
from helpers.small_models import SMALL

from modeling_roformer import NezhaConfig, NezhaModel

SIZES = {**SMALL, "vocab_size": 80, "num_hidden_layers": 3, "max_relative_position": 5}


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"max_relative_position": 0}, ["max_relative_position", 0, 1]),
        ({"hidden_size": 30, "num_attention_heads": 4}, ["hidden_size", 30, "num_attention_heads", 4]),
        ({"hidden_size": 18}, ["hidden_size", "num_attention_heads", 9]),
        ({"vocab_size": 0}, ["vocab_size", 0, 1]),
        ({"is_decoder": True}, ["is_decoder=True", "NEZHA"]),
        ({"add_cross_attention": True}, ["add_cross_attention=True", "NEZHA"]),
    ],
)
def test_configs_that_describe_no_model(fields, facts):
    with refused(ValueError, *facts):
        NezhaConfig(**{**SIZES, **fields})


def test_a_config_that_became_wrong_later():
    config = NezhaConfig(**SIZES)
    config.max_relative_position = -1
    with refused(ValueError, "max_relative_position", -1, 1):
        NezhaModel(config)
