"""The default learning rate of fine-tuning, by the width of a model."""

import pytest
from helpers.messages import assert_states

from modeling_roformer import RoFormerConfig
from modeling_roformer.training import fine_tuning_rate


@pytest.mark.parametrize(
    ("width", "rate"), [(16, 1e-3), (128, 1e-3), (192, 5e-4), (256, 3e-4), (384, 1e-4), (768, 3e-5), (1024, 2e-5)]
)
def test_narrower_models_get_more(width, rate, capsys):
    assert fine_tuning_rate(RoFormerConfig(hidden_size=width, num_attention_heads=1)) == rate
    assert_states(capsys.readouterr().out, f"{rate:g}", f"{width:,}", "--learning-rate")


@pytest.mark.parametrize(("width", "rate"), [(16, 1e-3), (128, 2e-4), (256, 9e-5), (512, 5e-5), (768, 3e-5)])
def test_pairs_get_less_in_a_narrow_model(width, rate, capsys):
    assert fine_tuning_rate(RoFormerConfig(hidden_size=width, num_attention_heads=1), pairs=True) == rate
    assert_states(capsys.readouterr().out, f"{rate:g}", "pairs", f"{width:,}", "--learning-rate")
