"""RoFormerConfig: transformers' fields and defaults, names on disk, refusals."""

import json
import logging

import pytest
import transformers.models.roformer.configuration_roformer as theirs
from transformers import AutoConfig

from modeling_roformer import RoFormerConfig


def saved(config, folder):
    config.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())


def test_fields_and_defaults_are_those_of_transformers():
    ours, expected = RoFormerConfig().to_dict(), theirs.RoFormerConfig().to_dict()
    assert {name: ours[name] for name in expected} == expected
    assert set(ours) - set(expected) == {"norm_type", "use_bias", "add_pooling_layer", "pooler_activation", "prefix_lm"}


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
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "roformer_x"),
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
    ("fields", "sentence"),
    [
        ({"hidden_size": 50}, r"hidden_size \(50\) is not a multiple of num_attention_heads \(12\)"),
        ({"hidden_size": 36}, "hidden_size / num_attention_heads is 3, an odd number"),
        ({"norm_type": "batch_norm"}, "norm_type is 'batch_norm'.*layer_norm, rms_norm"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"embedding_size": -1}, "embedding_size is -1"),
    ],
)
def test_sizes_that_describe_no_model_are_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        RoFormerConfig(**fields)


def test_embedding_size_follows_hidden_size():
    assert RoFormerConfig(hidden_size=24, num_attention_heads=2).embedding_size == 24
    assert RoFormerConfig(hidden_size=24, num_attention_heads=2, embedding_size=8).embedding_size == 8
