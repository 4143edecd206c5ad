"""The default learning rate of fine-tuning, by the width of a model, and the hint where nothing is learned."""

from types import SimpleNamespace

import pytest
from helpers.messages import assert_states

from modeling_roformer import RoFormerConfig
from modeling_roformer.training.runs.learning_rate import fine_tuning_rate
from modeling_roformer.training.runs.nothing_learned import NothingLearned


@pytest.mark.parametrize(
    ("width", "rate"), [(16, 1e-3), (128, 1e-3), (192, 5e-4), (256, 3e-4), (384, 1e-4), (768, 3e-5), (1024, 2e-5)]
)
def test_narrower_models_get_more(width, rate, capsys):
    assert fine_tuning_rate(RoFormerConfig(hidden_size=width, num_attention_heads=1)) == rate
    assert_states(capsys.readouterr().out, f"{rate:g}", f"{width:,}", "--learning-rate")


@pytest.mark.parametrize(
    ("accuracies", "hints"), [([0.6], 1), ([0.59], 1), ([0.61], 0), ([0.5, 0.6], 2), ([0.5, 0.7], 1), ([0.7, 0.6], 0)]
)
def test_the_hint_is_given_where_one_class_for_all_is_as_good(accuracies, hints, capfd):
    callback, arguments = NothingLearned([1, 0, 1, 1, 0]), SimpleNamespace(learning_rate=3e-5)
    for epoch, accuracy in enumerate(accuracies, 1):
        callback.on_evaluate(arguments, SimpleNamespace(epoch=float(epoch)), None, {"eval_accuracy": accuracy})
    end = SimpleNamespace(epoch=float(len(accuracies)), best_metric=max(accuracies))
    callback.on_train_end(arguments, end, None)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == hints
    for line in said:
        assert_states(line, "0.600", "--learning-rate", "3e-05")
