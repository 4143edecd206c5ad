"""RoFormerConfig: transformers' fields and defaults, refusals."""

import dataclasses
import math

import pytest
import transformers.models.roformer.configuration_roformer as theirs
from helpers.messages import assert_states, refused
from huggingface_hub.errors import StrictDataclassError

from modeling_roformer import NezhaConfig, RoFormerConfig, RoFormerSeq2SeqConfig


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
        "sinusoidal_scale": 1.0,
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


LINEAR = {"attention_type": "linear"}


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
        (
            {"position_encoding": "relative"},
            ["position_encoding", "relative", "rotary", "learned", "sinusoidal", "none"],
        ),
        ({"position_encoding": "learned", "rotary_value": True}, ["rotary_value=True", "position_encoding", "learned"]),
        ({"position_encoding": "none", "trainable_rope": True}, ["trainable_rope=True", "position_encoding", "none"]),
        (
            {"position_encoding": "sinusoidal", "rope_parameters": {"rope_theta": 500.0}},
            ["rope_parameters", "500.0", "position_encoding", "sinusoidal"],
        ),
        ({"position_encoding": "sinusoidal", "embedding_size": 5}, ["embedding_size", 5]),
        ({"position_encoding": "learned", "max_position_embeddings": 0}, ["max_position_embeddings", 0]),
        ({"sinusoidal_scale": math.nan}, ["sinusoidal_scale", "nan"]),
        ({"attention_type": "sparse"}, ["attention_type", "sparse", "softmax", "linear"]),
        ({**LINEAR, "linear_feature_map": "relu"}, ["linear_feature_map", "relu", "elu", "softmax", "cosine", "favor"]),
        ({**LINEAR, "linear_feature_map": "favor", "linear_num_features": 7}, ["linear_num_features", 7]),
        ({**LINEAR, "linear_rotation": "before"}, ['linear_rotation="before"', 'linear_feature_map="favor"', "elu"]),
        ({**LINEAR, "linear_rotation": "within"}, ["linear_rotation", "within", "after", "before"]),
        (
            {**LINEAR, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
            ["rope_type", "yarn", "attention_factor", "1.0"],
        ),
        (
            {**LINEAR, "linear_feature_map": "favor", "trainable_rope": True, "rotary_value": True},
            ["trainable_rope=True"],
        ),
        ({**LINEAR, "prefix_lm": True}, ["prefix_lm=True", 'attention_type="linear"']),
    ],
)
def test_fields_that_describe_no_model_are_refused(fields, facts):
    with refused(ValueError, *facts):
        RoFormerConfig(**fields)
    config = RoFormerConfig()
    with refused(ValueError, *facts):  # also where they are set before a model is made
        for name, value in fields.items():
            setattr(config, name, value)
        config.check()


def test_rope_scaling_is_a_dict():
    with refused(ValueError, "rope_parameters", "'yarn'", "dict"):
        RoFormerConfig(rope_scaling="yarn")


def test_embedding_size_follows_hidden_size():
    assert RoFormerConfig(hidden_size=24, num_attention_heads=2).embedding_size == 24
    assert RoFormerConfig(hidden_size=24, num_attention_heads=2, embedding_size=8).embedding_size == 8


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
    **{key: [0, -1] for key in SIZES}, **{key: [-0.1, 1.5, math.inf, -1, 2] for key in PROBABILITIES},
    **{key: [-1.0, math.inf, -math.inf] for key in AT_LEAST_0}, **{key: [0, -1.0, math.inf] for key in POSITIVE},
    "num_hidden_layers": [-1], "pad_token_id": [-1, 10**9], "linear_num_features": [0, 3, -2],
    "linear_redraw_interval": [0, -1], "classifier_layers": [0, 3],
}  # fmt: skip


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
