"""Classes of this package that Auto classes return."""

import pytest
import transformers

import modeling_roformer as ours
from modeling_roformer.auto_classes import CONFIG_CLASSES, auto_model_classes


@pytest.mark.parametrize("config_class", dict.fromkeys(CONFIG_CLASSES.values()))
def test_each_class_has_the_config_and_the_head_of_its_auto_class(config_class):
    for auto_class, cls in auto_model_classes(config_class).items():
        assert cls.config_class is config_class and getattr(ours, cls.__name__) is cls
        head = auto_class.removeprefix("AutoModel")
        if head not in ("", "ForTextEncoding", "ForPreTraining", "ForSeq2SeqLM"):
            assert cls.__name__.endswith(head)


@pytest.mark.parametrize(("model_type", "config_class"), CONFIG_CLASSES.items())
def test_auto_config_makes_the_class_of_each_model_type(model_type, config_class):
    assert type(transformers.AutoConfig.for_model(model_type)) is config_class
