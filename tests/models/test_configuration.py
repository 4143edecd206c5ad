"""RoFormerConfig: transformers' fields and defaults, refusals."""

import dataclasses

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
        ({"hidden_size": 36}, ["hidden_size", 36, "num_attention_heads", 12]),
        ({"add_pooling_layer": True}, ["add_pooling_layer=True", "pooler_activation", '"linear"', '"tanh"']),
        ({"add_cross_attention": True}, ["add_cross_attention=True", "is_decoder=True"]),
        ({"rope_parameters": {"rope_type": "spiral"}}, ["rope_type", "'spiral'", "default", "linear"]),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, ["rope_type", "'llama3'", "yarn"]),
        ({"rope_parameters": {"rope_type": "linear"}}, ["'linear'", "factor"]),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0.5}}, ["'linear'", "factor", 0.5]),
        ({"rope_parameters": {"rope_type": "linear", "factor": "2"}}, ["'linear'", "factor", "'2'"]),
        ({"rope_parameters": {"rope_theta": 0}}, ["'default'", "rope_theta", 0]),
        ({"rope_parameters": {"rope_theta": float("nan")}}, ["'default'", "rope_theta", "nan"]),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            ["'dynamic'", "original_max_position_embeddings"],
        ),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, ["'yarn'", "original_max_position_embeddings"]),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, ["'yarn'", "original_max_position_embeddings"]),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "fraction": 1}}, ["'linear'", "fraction"]),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, ["'default'", "partial_rotary_factor"]),
        ({"pad_token_id": 500, "vocab_size": 100}, ["pad_token_id", 500, 100]),
        ({"pad_token_id": -1}, ["pad_token_id", -1]),
        ({"triplet_loss": "hinge"}, ["triplet_loss", "'hinge'", "binary_cross_entropy", "softmax"]),
        ({"triplet_loss": "margin"}, ["triplet_loss", "'margin'", "triplet_scorer='cross'"]),
        (
            {"triplet_scorer": "bi", "triplet_loss": "binary_cross_entropy"},
            ["triplet_scorer='bi'", "softmax", "margin"],
        ),
        ({"position_encoding": "learned", "rotary_value": True}, ["rotary_value", "position_encoding='learned'"]),
        ({"position_encoding": "none", "trainable_rope": True}, ["trainable_rope", "position_encoding='none'"]),
        (
            {"position_encoding": "sinusoidal", "rope_parameters": {"rope_theta": 500.0}},
            ["rope_parameters", "position_encoding='sinusoidal'"],
        ),
        ({**LINEAR, "linear_rotation": "before"}, ['linear_rotation="before"', 'linear_feature_map="favor"', "elu"]),
        (
            {**LINEAR, "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
            ["rope_type", "yarn", "attention_factor", "1.0"],
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


def test_embedding_size_follows_hidden_size():
    assert RoFormerConfig(hidden_size=24, num_attention_heads=2).embedding_size == 24
    assert RoFormerConfig(hidden_size=24, num_attention_heads=2, embedding_size=8).embedding_size == 8


CHOICES = {
    "norm_type": ["batch_norm"],
    "attention_type": ["sparse"],
    "position_encoding": ["relative"],
    "linear_feature_map": ["relu"],
    "linear_rotation": ["within"],
    "classifier_layers": [0, 3],
    "triplet_scorer": ["tri"],
}
WRONG_TYPES = ["x", [1.5], {"a": 1}]


def bad_fields(config_class):
    """Every own field of a configuration with a bad value."""
    names = config_class.__annotations__.keys() - {"rope_parameters"}
    own = [field for field in dataclasses.fields(config_class) if field.name in names]
    pairs = [(field, value) for field in own for value in WRONG_TYPES + CHOICES.get(field.name, [])]
    # The names of activations are checked when a model is made.
    return [(field.name, value) for field, value in pairs if value != "x" or field.type not in (str, str | None)]


@pytest.mark.parametrize("config_class", [RoFormerConfig, NezhaConfig, RoFormerSeq2SeqConfig])
def test_a_value_of_another_type_or_choice_is_refused_by_name(config_class):
    for name, value in bad_fields(config_class):
        with pytest.raises(StrictDataclassError) as caught:
            config_class(**{name: value})
        assert_states(caught.value, name)
        config = config_class()
        with pytest.raises(StrictDataclassError) as caught:  # also where it is set afterwards
            setattr(config, name, value)
        assert_states(caught.value, name)
