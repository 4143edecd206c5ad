"""The names of the models with linear attention in published checkpoints."""

import pytest
from helpers.messages import refused
from helpers.small_models import small_config

import modeling_roformer as ours
from modeling_roformer import linear_models
from modeling_roformer.model import RoFormerPreTrainedModel
from modeling_roformer.registration.registry import auto_model_classes


def test_each_class_that_is_served_has_its_name_there():
    for cls in {*auto_model_classes().values()}:
        named = getattr(linear_models, cls.__name__)
        assert issubclass(named, cls) and named.__module__ == linear_models.__name__
        assert named.__doc__ == cls.__doc__


@pytest.mark.parametrize("name", ["RoFormerModel", "RoFormerForCausalLM", "NezhaModel"])
def test_without_its_code_linear_attention_is_refused(monkeypatch, name):
    monkeypatch.delitem(RoFormerPreTrainedModel.attention_classes, "linear")
    cls = getattr(ours, name)
    config = small_config(cls.config_class)
    config.attention_type = "linear"
    with refused(ValueError, "linear"):
        cls(config)
