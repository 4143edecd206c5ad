"""Trainer stops if a loss, a gradient, a weight or a score is not finite, before it changes a weight, and names it."""

import json

import numpy as np
import pytest
import torch
from helpers.messages import refused
from torch import nn
from transformers import TrainingArguments

from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.runs.finite import FiniteTrainer, NotFinite, first_not_finite, json_safe, show_failed


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 1)
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("steps", torch.zeros(1, dtype=torch.long))

    def forward(self, x, labels):
        predictions = self.layer(x).squeeze(-1) * self.scale
        return {"loss": (predictions - labels).square().mean(), "logits": predictions}


def make_trainer(folder, **arguments):
    some = torch.Generator().manual_seed(1)
    rows = [{"x": x, "labels": x.sum()} for x in torch.randn(8, 4, generator=some)]
    arguments = {
        "max_steps": 3,
        "per_device_train_batch_size": 4,
        "save_strategy": "no",
        "logging_steps": 100,
    } | arguments
    arguments = TrainingArguments(folder, report_to=[], use_cpu=True, disable_tqdm=True, **arguments)
    return FiniteTrainer(Regression(), arguments, train_dataset=rows, eval_dataset=rows)


def at_step(trainer, number, do):
    """Have something done before the forward pass of a step."""
    step = trainer.compute_loss

    def patched(*arguments, **options):
        if trainer.state.global_step == number - 1:
            do()
        return step(*arguments, **options)

    trainer.compute_loss = patched


def test_a_loss(tmp_path):
    trainer = make_trainer(tmp_path)
    at_step(trainer, 2, lambda: trainer.model.scale.fill_(torch.inf))
    with refused(NotFinite, "loss", "inf", "step 2"):
        trainer.train()
    assert trainer.model.layer.weight.isfinite().all()


def test_a_gradient_behind_a_finite_loss(tmp_path):
    """transformers' Trainer clips such a gradient to NaN and logs a loss of 0."""
    trainer = make_trainer(tmp_path)
    at_step(trainer, 3, lambda: trainer.model.layer.bias.register_hook(lambda gradient: gradient * torch.inf))
    before = trainer.model.layer.bias.clone()
    with refused(NotFinite, "gradient", "step 3"):
        trainer.train()
    assert trainer.model.layer.bias.isfinite().all() and not torch.equal(trainer.model.layer.bias, before)


@pytest.mark.parametrize("name", ["layer.bias", "scale"])
def test_a_weight_after_the_last_update(name, tmp_path):
    """No loss is computed after the last update."""
    trainer = make_trainer(tmp_path)
    step = trainer.create_optimizer().step

    def spoil(*arguments, **options):
        step(*arguments, **options)
        if trainer.state.global_step == 2:
            trainer.model.state_dict()[name].fill_(torch.nan)

    trainer.optimizer.step = spoil
    with refused(NotFinite, name, "step 3"):
        trainer.train()


def test_an_evaluation_must_be_finite(tmp_path):
    trainer = make_trainer(tmp_path)
    rows = trainer.eval_dataset
    found = trainer.predict(rows).metrics["test_loss"]
    assert found == pytest.approx(trainer.evaluate()["eval_loss"])
    rows[3]["labels"] = torch.tensor(torch.nan)
    with refused(NotFinite, "eval_loss", "nan"):
        trainer.evaluate()
    rows[3] = {"x": torch.full((4,), torch.inf), "labels": torch.tensor(torch.nan)}
    trainer.args.prediction_loss_only = False
    with pytest.raises(NotFinite, match="(test_loss|scores)"):
        trainer.predict(rows)


def test_scores_without_labels(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.model.forward = lambda x: {"logits": trainer.model.layer(x).squeeze(-1)}
    rows = [{"x": row["x"]} for row in trainer.eval_dataset]
    assert np.isfinite(trainer.predict(rows).predictions).all()
    rows[2]["x"] = torch.full((4,), torch.nan)
    with refused(NotFinite, "scores"):
        trainer.predict(rows)


def test_finite_models():
    assert first_not_finite(Regression()) is None and first_not_finite(nn.ReLU()) is None
    model = Regression().to(torch.bfloat16)
    model.layer.weight.data[0, 2] = -torch.inf
    assert first_not_finite(model) == "layer.weight"
    model = Regression()
    model.layer.weight.data.fill_(3e38)  # whose sum is not finite
    assert first_not_finite(model) is None


def test_as_json():
    value = {"a": [1.5, float("nan"), (float("inf"), 2)], "b": None, "c": "nan", "d": {"e": -float("inf")}, "f": True}
    assert json_safe(value) == {"a": [1.5, None, [None, 2]], "b": None, "c": "nan", "d": {"e": None}, "f": True}
    json.dumps(json_safe(value), allow_nan=False)


def test_failed_runs_are_named(capsys):
    show_failed({})
    show_failed({"one": None, "two": "the loss is nan"})
    assert capsys.readouterr().out == "failed: two: the loss is nan\n"
    with refused(TrainingError, "2 runs"):
        show_failed({"one": "x", "two": "the loss is nan"})
