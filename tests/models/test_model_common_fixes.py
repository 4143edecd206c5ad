"""Properties that tools written for transformers' own models expect of a config and of loading, and once did not find
here."""

import json

import pytest
import torch
from helpers.messages import assert_states
from helpers.small_models import small_config
from transformers import AutoModelForSequenceClassification

from modeling_roformer import RoFormerConfig, RoFormerForSequenceClassification, RoFormerModel

PAPER = {"rope_type": "default", "rope_theta": 10000.0}


@pytest.mark.parametrize("load", [RoFormerForSequenceClassification, AutoModelForSequenceClassification])
def test_a_misshapen_weight_is_an_error_of_both_kinds(tmp_path, load):
    RoFormerForSequenceClassification(small_config(num_labels=3)).save_pretrained(tmp_path)
    for kind in (ValueError, RuntimeError):  # this package's, and the one that transformers raises
        with pytest.raises(kind) as caught:
            load.from_pretrained(tmp_path, num_labels=4)
        assert_states(caught.value, tmp_path, "classifier.out_proj.bias", (3,), (4,), "ignore_mismatched_sizes=True")


@pytest.mark.parametrize("given", [None, {}, PAPER, {"rope_type": "default"}])
def test_rope_parameters_are_always_a_dict_and_the_papers_are_not_written(tmp_path, given):
    config = small_config(rope_parameters=given)
    assert config.rope_parameters == PAPER
    config.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written.get("rope_parameters") is None
    assert written["model_type"] == "roformer"
    assert RoFormerConfig.from_pretrained(tmp_path).rope_parameters == PAPER


def test_no_config_shares_its_rope_parameters():
    small_config().rope_parameters["rope_theta"] = 5.0
    assert small_config().rope_parameters == PAPER


def test_rope_parameters_taken_away_later_are_the_papers():
    config = small_config()
    torch.manual_seed(0)
    expected = RoFormerModel(config).eval()(torch.arange(9)[None]).last_hidden_state
    config.rope_parameters = None
    torch.manual_seed(0)
    assert torch.equal(RoFormerModel(config).eval()(torch.arange(9)[None]).last_hidden_state, expected)
    assert config.to_dict()["model_type"] == "roformer"


def test_the_trained_length_may_be_told_where_nothing_is_scaled(tmp_path):
    told = {**PAPER, "original_max_position_embeddings": 512}
    config = small_config(rope_parameters=told)
    config.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    # Plain transformers computes such a model right, so it may read it.
    assert written["model_type"] == "roformer"
    assert written["rope_parameters"] == told
    assert RoFormerConfig.from_pretrained(tmp_path).rope_parameters == told


def test_another_base_is_hidden_from_plain_transformers():
    assert small_config(rope_parameters={"rope_theta": 500.0}).to_dict()["model_type"] == "roformer_x"
