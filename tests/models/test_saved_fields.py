"""Fields of a saved configuration: RoPE's are completed and checked; the type tells what transformers computes."""

import json

import pytest
from helpers.messages import refused
from helpers.small_models import small_config
from transformers import AutoConfig

from modeling_roformer import RoFormerConfig

PAPER = {"rope_type": "default", "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


def saved(config, folder):
    config.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "roformer"),
        ({"embedding_size": 48, "rotary_value": True}, "roformer"),
        ({"is_decoder": True}, "roformer"),
        ({"norm_type": "rms_norm"}, "roformer_v2"),
        ({"use_bias": False}, "roformer_v2"),
        ({"prefix_lm": True}, "roformer_x"),
        ({"classifier_layers": 1}, "roformer_x"),
        ({"classifier_activation": "tanh"}, "roformer_x"),
        ({"classifier_activation": "gelu"}, "roformer"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "roformer_x"),
        ({"rope_parameters": {"rope_theta": 5000.0}}, "roformer_x"),
        ({"rope_parameters": {"rope_type": "default"}}, "roformer"),
        ({"rope_theta": 10000.0}, "roformer"),
        ({"trainable_rope": True}, "roformer_x"),
        ({"attention_type": "linear"}, "roformer_x"),
        *(({"position_encoding": name}, "roformer_x") for name in ("learned", "sinusoidal", "none")),
        ({"position_encoding": "learned", "norm_type": "rms_norm"}, "roformer_x"),
    ],
)
def test_the_name_on_disk_says_whether_plain_transformers_computes_it(fields, name, tmp_path, said):
    config = RoFormerConfig(**fields)
    assert config.model_type == "roformer"
    assert saved(config, tmp_path)["model_type"] == name
    for read in (RoFormerConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(read) is RoFormerConfig and read.model_type == "roformer"
        assert read.to_diff_dict() == config.to_diff_dict()
    assert not said.text


def test_a_v2_checkpoint_published_as_roformer_is_read(tmp_path):
    """Others wrote model_type "roformer" with such fields; saved here, it gets the name that tells."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer", "norm_type": "rms_norm"}))
    config = AutoConfig.from_pretrained(tmp_path)
    assert type(config) is RoFormerConfig
    assert config.norm_type == "rms_norm"
    assert saved(config, tmp_path / "again")["model_type"] == "roformer_v2"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rope_parameters": YARN}, {**YARN, "rope_theta": 10000.0}),
        ({"rope_parameters": {"type": "linear", "factor": 2.0}}, {"rope_type": "linear", "factor": 2.0}),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, {"rope_type": "linear", "factor": 2.0}),
        ({"rope_parameters": None}, {"rope_type": "default"}),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, ["'yarn'", "original_max_position_embeddings"]),
        ({"rope_scaling": {"type": "spiral"}}, ["rope_type", "'spiral'"]),
    ],
)
@pytest.mark.parametrize("how", ["constructor", "from_pretrained", "set afterwards"])
def test_rope_is_completed_and_checked_wherever_it_is_given(given, expected, how, tmp_path):
    def make():
        if how == "constructor":
            return RoFormerConfig(**given)
        if how == "from_pretrained":
            RoFormerConfig(rope_parameters={"rope_type": "linear", "factor": 9.0}).save_pretrained(tmp_path)
            return AutoConfig.from_pretrained(tmp_path, **given)
        config = RoFormerConfig()
        for name, value in given.items():
            setattr(config, name, value)
        return config

    if isinstance(expected, list):
        with refused(ValueError, *expected):
            make()
    else:
        config = make()
        complete = {"rope_type": "linear", "rope_theta": 10000.0, **expected}
        assert config.rope_parameters == complete
        assert RoFormerConfig.from_dict(config.to_dict()).rope_parameters == complete


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


def test_a_new_base_for_a_checkpoint(tmp_path):
    RoFormerConfig(rope_parameters=YARN).save_pretrained(tmp_path)
    loaded = RoFormerConfig.from_pretrained(tmp_path, rope_theta=500.0, rope_scaling={"type": "linear", "factor": 2.0})
    assert loaded.rope_parameters == {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}
    loaded = RoFormerConfig.from_pretrained(tmp_path, rope_theta=500.0)
    assert loaded.rope_parameters == {**YARN, "rope_theta": 500.0}


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
        {"rope_parameters": YARN},
        {"rope_parameters": None},
    ],
)
@pytest.mark.parametrize(
    "saved_fields",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}},
        {"rope_theta": 50000.0},
        {"rope_theta": 50000.0, "rope_scaling": {"type": "linear", "factor": 9.0}},
    ],
)
@pytest.mark.parametrize("how", ["from_pretrained", "set afterwards"])
def test_a_checkpoint_keeps_its_base(fields, saved_fields, how, tmp_path):
    """Weights were trained with the saved base; one that is given replaces it."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer", **saved_fields}))
    if how == "from_pretrained":
        config = AutoConfig.from_pretrained(tmp_path, **fields)
    else:
        config = AutoConfig.from_pretrained(tmp_path)
        for name, value in fields.items():
            setattr(config, name, value)
    rope = next(iter(fields.values())) or {"rope_type": "default"}
    assert config.rope_parameters["rope_type"] == rope.get("rope_type", "linear")
    assert config.rope_parameters.get("factor") == rope.get("factor")
    assert config.rope_parameters["rope_theta"] == 50000.0
    config.rope_theta = 500.0
    assert config.rope_parameters["rope_theta"] == 500.0
    assert saved(config, tmp_path)["rope_parameters"] == config.rope_parameters


def test_the_trained_length_may_be_told_where_nothing_is_scaled(tmp_path):
    told = {**PAPER, "original_max_position_embeddings": 512}
    config = small_config(rope_parameters=told)
    config.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    # Plain transformers computes such a model right, so it may read it.
    assert written["model_type"] == "roformer"
    assert written["rope_parameters"] == told
    assert RoFormerConfig.from_pretrained(tmp_path).rope_parameters == told
