"""Check that gradients, weights and scores are finite. A run with one that is not has failed: it is no bad run."""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from ..errors import TrainingError


class NotFinite(TrainingError):
    """Error of a failed run: a gradient, a weight, a loss or a score is not finite."""


class FiniteCallback(TrainerCallback):
    """Callback that ends a run with `NotFinite` as soon as a number in it is not finite.

    Gradients are checked before the step that they would change the weights by, weights before the first step, before
    each checkpoint and at the end, losses and scores whenever they are logged. So no checkpoint has NaN, and NaN is
    never the best score.

    >>> Trainer(model, arguments, train_dataset=texts, callbacks=[FiniteCallback()])
    """

    def on_train_begin(self, args, state, control, model, **kwargs):
        args.logging_nan_inf_filter = False  # it would replace such losses in the log
        _require_weights(model, "before the first step: start from another checkpoint")

    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        if args.fp16:  # its scaler skips such steps
            return
        gradients = ((name, weight.grad) for name, weight in model.named_parameters() if weight.grad is not None)
        if name := _first_not_finite(gradients):
            _fail(f"the gradient of {name} is not finite", f"in step {state.global_step + 1:,}")

    def on_step_end(self, args, state, control, model, **kwargs):
        if control.should_save or control.should_evaluate:
            _require_weights(model, f"after step {state.global_step:,}: use a lower learning rate")

    on_epoch_end = on_step_end

    def on_train_end(self, args, state, control, model, **kwargs):
        _require_weights(model, f"after step {state.global_step:,}: use a lower learning rate")

    def on_log(self, args, state, control, logs, **kwargs):
        _require_finite(logs, state.global_step)

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        _require_finite(metrics, state.global_step)

    on_predict = on_evaluate


@torch.no_grad()
def first_not_finite(model: nn.Module) -> str | None:
    """Return the name of a parameter or a buffer that is not finite, or None. Of sharded ones, check the local
    shard."""
    return _first_not_finite([*model.named_parameters(), *model.named_buffers()])


def _first_not_finite(tensors: Iterable[tuple[str, torch.Tensor]]) -> str | None:
    local = {name: x.to_local() if isinstance(x, DTensor) else x for name, x in tensors}
    local = {name: x.detach() for name, x in local.items() if x.is_floating_point() and not x.is_sparse}
    # Sums are several times faster than isfinite, and a finite sum has finite terms. One device sync for all.
    sums = [x.sum(dtype=torch.float64 if x.dtype == torch.float64 else torch.float32) for x in local.values()]
    if not sums or torch.stack([total.to(sums[0]) for total in sums]).isfinite().all():
        return None
    return next((name for name, x in local.items() if not x.isfinite().all()), None)


def _require_weights(model: nn.Module, when: str) -> None:
    if name := first_not_finite(model):
        raise NotFinite(f"the weight {name} is not finite {when}")


def _require_finite(figures: Mapping[str, object], step: int) -> None:
    for name, value in figures.items():
        if isinstance(value, float) and not math.isfinite(value):
            _fail(f"{name} is {value}", f"after step {step:,}")


def _fail(what: str, when: str) -> None:
    raise NotFinite(f"{what} {when}: use a lower learning rate, or a longer warm-up")
