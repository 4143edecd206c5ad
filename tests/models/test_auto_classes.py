"""Classes of configurations that AutoConfig returns; test_registration.py has those of models."""

import pytest
import transformers

from modeling_roformer.auto_classes import CONFIG_CLASSES


@pytest.mark.parametrize(("model_type", "config_class"), CONFIG_CLASSES.items())
def test_auto_config_makes_the_class_of_each_model_type(model_type, config_class):
    assert type(transformers.AutoConfig.for_model(model_type)) is config_class
