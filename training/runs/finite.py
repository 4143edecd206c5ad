"""Checks that loss, gradients, weights and scores are finite. A run where one is not has failed; it is not just a bad
run."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import Trainer

from ..errors import TrainingError
from .finite_callback import NotFinite, first_not_finite


class FiniteTraining:
    """Mixin for a Trainer: training, evaluation and prediction raise `NotFinite` if the run has failed.

    The loss and the gradient norm of each step are checked before the step changes a weight; parameters and buffers are
    checked at the end.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.args.logging_nan_inf_filter = False  # it would replace such losses in the log

    def train(self, *args, **kwargs):
        done = super().train(*args, **kwargs)
        self.require_finite_weights()
        return done

    def training_step(self, *args, **kwargs) -> torch.Tensor:
        loss = super().training_step(*args, **kwargs)
        if not math.isfinite(value := loss.item()):
            self.fail(f"the loss is {value} at step {self.state.global_step + 1:,}")
        return loss

    def _get_grad_norm(self, model, grad_norm=None):
        norm = super()._get_grad_norm(model, grad_norm)
        if not torch.isfinite(torch.as_tensor(norm)).all():
            self.fail(f"the gradient is not finite at step {self.state.global_step + 1:,}")
        return norm

    def require_finite_weights(self) -> None:
        """Raise `NotFinite` in all processes if a parameter or a buffer is not finite in one of them."""
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        name = first_not_finite(model)
        bad = torch.tensor(float(name is not None), device=self.accelerator.device)
        if self.accelerator.num_processes > 1:
            bad = self.accelerator.reduce(bad, "sum")
        if bad:
            self.fail(f"{name or 'a weight'} is not finite after step {self.state.global_step:,}")

    def log(self, logs: dict[str, float], *args, **kwargs) -> None:
        self._require_finite(logs)
        super().log(logs, *args, **kwargs)

    def evaluation_loop(self, *args, **kwargs):
        found = super().evaluation_loop(*args, **kwargs)
        self._require_finite(found.metrics)
        for scores in found.predictions if isinstance(found.predictions, tuple) else (found.predictions,):
            if isinstance(scores, np.ndarray) and scores.dtype.kind == "f" and not np.isfinite(scores).all():
                self.fail(f"the model's scores are not finite after step {self.state.global_step:,}")
        return found

    def _require_finite(self, figures: Mapping[str, object]) -> None:
        for name, value in figures.items():
            if isinstance(value, float) and not math.isfinite(value):
                self.fail(f"{name} is {value} after step {self.state.global_step:,}")

    def fail(self, what: str) -> None:
        """Raise `NotFinite`; `what` says what is not finite, and at which step."""
        raise NotFinite(f"{what}: a lower learning rate may help")


class FiniteTrainer(FiniteTraining, Trainer):
    """Trainer that raises `NotFinite` in a failed run."""


def require_finite_start(model: nn.Module, place: str | Path) -> None:
    """Raise NotFinite if a model that was loaded from `place` has a weight that is not finite."""
    if name := first_not_finite(model):
        raise NotFinite(f"the weight {name} of {place} is not finite: use an earlier checkpoint")


def show_failed(failed: Mapping[str, str | None]) -> None:
    """Print which runs failed (name of each run -> the reason, or None). Raise a TrainingError if all did."""
    for name, why in failed.items():
        if why:
            print(f"failed: {name}: {why}")
    if failed and all(failed.values()):
        raise TrainingError("the run failed" if len(failed) == 1 else f"all {len(failed)} runs failed")


def json_safe(value: object) -> object:
    """Return a value with None in place of numbers that are not finite, which JSON lacks.

    >>> json_safe({"loss": [0.5, float("nan")]})
    {'loss': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {name: json_safe(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
