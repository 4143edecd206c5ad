"""RoFormerConfig: transformers' fields and defaults, names on disk, refusals."""

import dataclasses
import json
import logging
import math

import pytest
import transformers.models.roformer.configuration_roformer as theirs
from helpers.messages import assert_states, refused
from helpers.properties import max_examples
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig

from modeling_roformer import NezhaConfig, RoFormerConfig, RoFormerSeq2SeqConfig


def saved(config, folder):
    config.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())


def test_fields_and_defaults_are_those_of_transformers():
    ours, expected = RoFormerConfig().to_dict(), theirs.RoFormerConfig().to_dict()
    assert {name: ours[name] for name in expected} == expected
    assert {name: ours[name] for name in set(ours) - set(expected)} == {
        "norm_type": "layer_norm",
        "use_bias": True,
        "add_pooling_layer": False,
        "pooler_activation": None,
        "prefix_lm": False,
        "position_encoding": "rotary",
        "attention_type": "softmax",
        "linear_feature_map": "elu",
        "linear_num_features": 256,
        "linear_rotation": "after",
        "linear_redraw_interval": 1000,
        "linear_seed": 0,
        "rope_parameters": None,
        "trainable_rope": False,
        "sparse_prediction": False,
        "unpad_inputs": True,
        "classifier_layers": 2,
        "classifier_activation": None,
        "triplet_scorer": "cross",
        "triplet_loss": None,
        "triplet_temperature": 0.05,
        "triplet_margin": 0.2,
    }


def test_fields_of_the_roformer_package_are_read():
    """A config.json as roformer 0.4.3 writes it."""
    config = RoFormerConfig.from_dict(
        {
            "architectures": ["RoFormerForMaskedLM"],
            "embedding_size": 384,
            "gradient_checkpointing": False,
            "hidden_size": 384,
            "model_type": "roformer",
            "norm_type": "rms_norm",
            "num_attention_heads": 6,
            "pooler_activation": "linear",
            "use_bias": False,
        }
    )
    assert (config.norm_type, config.use_bias, config.pooler_activation) == ("rms_norm", False, "linear")


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
    ],
)
def test_the_name_on_disk_says_whether_plain_transformers_computes_it(fields, name, tmp_path, caplog):
    config = RoFormerConfig(**fields)
    assert config.model_type == "roformer"
    assert saved(config, tmp_path)["model_type"] == name
    logging.getLogger("transformers").propagate = True
    with caplog.at_level(logging.WARNING):
        for read in (RoFormerConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
            assert type(read) is RoFormerConfig
            assert read.model_type == "roformer"
            assert read.to_diff_dict() == config.to_diff_dict()
    assert not caplog.text


def test_a_v2_checkpoint_published_as_roformer_is_read(tmp_path):
    """Others wrote model_type "roformer" with such fields; saved here, it gets the name that tells."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer", "norm_type": "rms_norm"}))
    config = AutoConfig.from_pretrained(tmp_path)
    assert type(config) is RoFormerConfig
    assert config.norm_type == "rms_norm"
    assert saved(config, tmp_path / "again")["model_type"] == "roformer_v2"


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"hidden_size": 50}, ["hidden_size", 50, "num_attention_heads", 12]),
        ({"hidden_size": 36}, ["hidden_size", "num_attention_heads", 3]),
        ({"norm_type": "batch_norm"}, ["norm_type", "'batch_norm'", "layer_norm", "rms_norm"]),
        ({"num_attention_heads": 0}, ["num_attention_heads", 0, 1]),
        ({"vocab_size": 0}, ["vocab_size", 0, 1]),
        ({"embedding_size": -1}, ["embedding_size", -1, 1]),
        ({"add_pooling_layer": True}, ["add_pooling_layer=True", "pooler_activation", '"linear"', '"tanh"']),
        ({"add_cross_attention": True}, ["add_cross_attention=True", "is_decoder=True"]),
        ({"rope_parameters": {"rope_type": "spiral"}}, ["rope_type", "'spiral'", "default", "linear"]),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, ["rope_type", "'llama3'", "yarn"]),
        ({"rope_parameters": {"rope_type": "linear"}}, ["'linear'", "factor", None, 1]),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0.5}}, ["'linear'", "factor", 0.5, 1]),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            ["'dynamic'", "original_max_position_embeddings"],
        ),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, ["'yarn'", "original_max_position_embeddings"]),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, ["'yarn'", "original_max_position_embeddings"]),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "fraction": 1}}, ["'linear'", "fraction"]),
        ({"rope_parameters": {"rope_theta": 0.5}}, ["rope_theta", 0.5, 1]),
        ({"rope_theta": "10000"}, ["rope_theta", "'10000'", 1]),
        ({"rope_scaling": "yarn"}, ["rope_parameters", "'yarn'", "dict"]),
        ({"pad_token_id": 500, "vocab_size": 100}, ["pad_token_id", 500, 100]),
        ({"pad_token_id": -1}, ["pad_token_id", -1]),
        ({"triplet_scorer": "tri"}, ["triplet_scorer", "'tri'", "cross", "bi"]),
        ({"triplet_loss": "hinge"}, ["triplet_loss", "'hinge'", "binary_cross_entropy", "softmax"]),
        ({"triplet_loss": "margin"}, ["triplet_loss", "'margin'", "triplet_scorer='cross'"]),
        (
            {"triplet_scorer": "bi", "triplet_loss": "binary_cross_entropy"},
            ["triplet_scorer='bi'", "softmax", "margin"],
        ),
        ({"triplet_temperature": 0.0}, ["triplet_temperature", 0.0, 0]),
        ({"classifier_layers": 3}, ["classifier_layers", 3, 1, 2]),
        ({"triplet_margin": -0.1}, ["triplet_margin", -0.1, 0]),
    ],
)
def test_sizes_that_describe_no_model_are_refused(fields, facts):
    with refused(ValueError, *facts):
        RoFormerConfig(**fields)


def test_embedding_size_follows_hidden_size():
    assert RoFormerConfig(hidden_size=24, num_attention_heads=2).embedding_size == 24
    assert RoFormerConfig(hidden_size=24, num_attention_heads=2, embedding_size=8).embedding_size == 8


def test_older_names_of_rope_parameters_are_read():
    expected = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}
    assert RoFormerConfig(rope_scaling={"type": "linear", "factor": 4.0}, rope_theta=5000.0).rope_parameters == expected
    assert RoFormerConfig(rope_parameters=expected).rope_parameters == expected


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


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


# Numbers that describe no model, of every field, by its kind. The type alone is checked by huggingface_hub.
SIZES = {"vocab_size", "type_vocab_size", "max_position_embeddings", "max_relative_position"}
SIZES |= {"hidden_size", "embedding_size", "num_attention_heads", "intermediate_size", "d_model"}
SIZES |= {f"{stack}_{size}" for stack in ("encoder", "decoder") for size in ("layers", "attention_heads", "ffn_dim")}
PROBABILITIES = {"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "dropout"}
PROBABILITIES |= {"attention_dropout"}
AT_LEAST_0 = {"initializer_range", "init_std", "layer_norm_eps"}
POSITIVE = {"triplet_temperature", "triplet_margin"}
WRONG_TYPES = [math.nan, "x", [1.5], {"a": 1}]
BAD_NUMBERS = {
    **{key: [0, -1] for key in SIZES},
    **{key: [-0.1, 1.5, math.inf, -1, 2] for key in PROBABILITIES},
    **{key: [-1.0, math.inf, -math.inf] for key in AT_LEAST_0},
    **{key: [0, -1.0, math.inf] for key in POSITIVE},
    "num_hidden_layers": [-1],
    "pad_token_id": [-1, 10**9],
    "linear_num_features": [0, 3, -2],
    "linear_redraw_interval": [0, -1],
    "classifier_layers": [0, 3],
}


def bad_fields(config_class):
    """Every own field of a configuration with a bad value."""
    own = [field for field in dataclasses.fields(config_class) if field.name in config_class.__annotations__]
    pairs = [(field, value) for field in own for value in WRONG_TYPES + BAD_NUMBERS.get(field.name, [])]
    # The names of activations are checked when a model is made.
    return [(field.name, value) for field, value in pairs if value != "x" or field.type not in (str, str | None)]


@pytest.mark.parametrize("config_class", [RoFormerConfig, NezhaConfig, RoFormerSeq2SeqConfig])
def test_a_bad_value_of_any_field_is_refused_by_name(config_class):
    for name, value in bad_fields(config_class):
        with pytest.raises((ValueError, StrictDataclassError)) as caught:
            config_class(**{name: value})
        assert_states(caught.value, name)
        config = config_class()
        with pytest.raises((ValueError, StrictDataclassError)) as caught:  # also where it is set before a model is made
            setattr(config, name, value)
            config.check()
        assert_states(caught.value, name)


ROPE_NUMBERS = {
    "rope_theta": [1.0, 0, 10**400],  # an integer that no float holds
    "factor": [0.5, True, 10**400],
    "original_max_position_embeddings": [0, -1, 16.0, True],
    "attention_factor": [0, True],
    "beta_fast": [0, True, 0.5],  # less than beta_slow, which is 1 by default
    "beta_slow": [0, True, 33],
    **{key: [-0.5, True] for key in ["mscale", "mscale_all_dim"]},
    "truncate": [0, 1],
}


@given(
    st.sampled_from(sorted(ROPE_NUMBERS)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.sampled_from([*ROPE_NUMBERS[name], math.nan, math.inf, -math.inf, -1.0, "10000", [1.0], {}])
            | st.floats(max_value=-1e-9)
            | st.text(max_size=3),
        )
    )
)
@max_examples(150)
def test_a_bad_value_of_any_field_of_rope_is_refused_by_name(pair):
    name, value = pair
    with refused(ValueError, name, repr(value)):
        RoFormerConfig(rope_parameters={**YARN, name: value})
    config = RoFormerConfig()
    with refused(ValueError, name, repr(value)):
        config.rope_parameters = {**YARN, name: value}
