"""Check that gradients, weights and scores are finite. A run has failed if one of them is not."""

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

    Gradients are checked before each step, weights before the first step, before each checkpoint and at the end, and
    losses and scores when they are logged. So no checkpoint has NaN, and NaN is never the best score. On CUDA, the
    check of a gradient is read one step later, so that the host does not wait for the device. A checkpoint, an
    evaluation and a log entry read it first. Callbacks that cause one of these themselves must precede this one.

    >>> Trainer(model, arguments, train_dataset=texts, callbacks=[FiniteCallback()])
    """

    def __init__(self):
        # A step, the names of its gradients, and their norms.
        self._unread: tuple[int, list[str], _HostCopy] | None = None

    def on_train_begin(self, args, state, control, model, **kwargs):
        args.logging_nan_inf_filter = False  # it would replace such losses in the log
        self._unread = None  # may be left from a stopped training
        _require_weights(model, "before the first step: start from another checkpoint")

    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        if args.fp16:  # its scaler skips such steps
            return
        self._read()
        gradients = _local((name, weight.grad) for name, weight in model.named_parameters() if weight.grad is not None)
        if gradients:
            self._unread = state.global_step + 1, [*gradients], _HostCopy(_norms(gradients.values()))
            # A signal may save a checkpoint before the next step.
            if args.enable_jit_checkpoint or not _reads_later(args.device):
                self._read()

    def _read(self) -> None:
        """Raise NotFinite if one of the norms that are not read yet is not finite."""
        if self._unread is not None:
            step, names, norms = self._unread
            self._unread = None
            for name, norm in zip(names, norms.read(), strict=True):
                if not math.isfinite(norm):
                    _fail(f"the gradient of {name} is not finite", f"in step {step:,}")

    def on_step_end(self, args, state, control, model, **kwargs):
        if control.should_log or control.should_save or control.should_evaluate:
            self._read()
        if control.should_save or control.should_evaluate:
            _require_weights(model, f"after step {state.global_step:,}: use a lower learning rate")

    on_epoch_end = on_step_end

    def on_train_end(self, args, state, control, model, **kwargs):
        self._read()
        _require_weights(model, f"after step {state.global_step:,}: use a lower learning rate")

    def on_log(self, args, state, control, logs, **kwargs):
        _require_finite(logs, state.global_step)

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        _require_finite(metrics, state.global_step)

    on_predict = on_evaluate


class _HostCopy:
    """Copy of a tensor on the host. The host waits for it when it is read, and on CUDA only then."""

    def __init__(self, values: torch.Tensor):
        self.values = values.to("cpu", non_blocking=values.is_cuda)
        self.done = torch.Event(values.device) if values.is_cuda else None
        if self.done is not None:
            self.done.record()

    def read(self) -> list[float]:
        if self.done is not None:
            self.done.synchronize()
        return self.values.tolist()


def _reads_later(device: torch.device) -> bool:
    """Return whether a device is so far behind the host that waiting for it costs time."""
    return device.type == "cuda"


@torch.no_grad()
def first_not_finite(model: nn.Module) -> str | None:
    """Return the name of a parameter or a buffer that is not finite, or None. Check the local shard of sharded ones."""
    return _first_not_finite([*model.named_parameters(), *model.named_buffers()])


def _first_not_finite(tensors: Iterable[tuple[str, torch.Tensor]]) -> str | None:
    local = _local(tensors)
    # Norms are several times faster than isfinite, and a finite norm has finite terms. One device sync for all.
    if not local or _norms(local.values()).isfinite().all():
        return None
    return next((name for name, x in local.items() if not x.isfinite().all()), None)


def _local(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return the dense floating-point tensors by name. A sharded tensor is replaced by its local shard."""
    local = {name: x.to_local() if isinstance(x, DTensor) else x for name, x in tensors}
    local = {name: x.detach() for name, x in local.items() if x.is_floating_point() and not x.is_sparse}
    # Neither norms nor isfinite take float8. bfloat16 has all of its numbers.
    return {name: x.bfloat16() if x.itemsize == 1 else x for name, x in local.items()}


def _norms(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the norm of each tensor, in at least float32: squares overflow float16."""
    tensors = [*tensors]
    dtype = torch.float64 if any(x.dtype == torch.float64 for x in tensors) else torch.float32
    return torch.stack([norm.to(tensors[0].device) for norm in torch._foreach_norm(tensors, 2, dtype)])


def _require_weights(model: nn.Module, when: str) -> None:
    if name := first_not_finite(model):
        raise NotFinite(f"the weight {name} is not finite {when}")


def _require_finite(figures: Mapping[str, object], step: int) -> None:
    for name, value in figures.items():
        if isinstance(value, float) and not math.isfinite(value):
            _fail(f"{name} is {value}", f"after step {step:,}")


def _fail(what: str, when: str) -> None:
    raise NotFinite(f"{what} {when}: use a lower learning rate, or a longer warm-up")
