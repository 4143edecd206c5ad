"""Trainer for one stage of masked language modelling."""

from collections.abc import Sequence

import torch
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainerCallback

from modeling_roformer.inputs import has_float64, nonzero

from ..runs.finite_callback import FiniteCallback
from .masking import IGNORED
from .muon import MuonAndAdamW


class StageTrainer(Trainer):
    """Trainer that also logs accuracy, evaluates on held-out batches, and may train with Muon.

    The logged accuracy is the mean over all labels since the last entry, in all processes.

    Args:
        held_out: batches of `MaskingCollator` for `evaluate`, or None.
    """

    def __init__(self, *args, held_out: Sequence | None = None, **kwargs):
        super().__init__(*args, eval_dataset=held_out, callbacks=[_LastStep(), FiniteCallback()], **kwargs)
        self.held_out = held_out
        self.right, self.labels = 0, 0  # since the last entry: right predictions and labels

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        model = self.model if model is None else model
        if self.optimizer is None and self.train_dataset.stage.optimizer == "muon":
            args, decayed = self.args, self.get_decay_parameter_names(model)
            betas = args.adam_beta1, args.adam_beta2
            self.optimizer = MuonAndAdamW(
                model, decayed, args.learning_rate, args.weight_decay, betas, args.adam_epsilon
            )
        return super().create_optimizer(model)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        logits = outputs["logits"].detach()
        self.right += (logits.argmax(-1) == _labels(logits, inputs["labels"])).sum()
        self.labels += len(logits)
        return (loss, outputs) if return_outputs else loss

    def _mean(self, sums: Sequence[float], number: float) -> list[float]:
        """Return the sums over all processes, divided by the number over all processes."""
        device = self.accelerator.device
        dtype = torch.float64 if has_float64(device) else torch.float32
        values = torch.tensor([*map(float, sums), float(number)], dtype=dtype, device=device)
        *sums, number = self.accelerator.reduce(values, "sum").tolist()
        return [value / number for value in sums]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            (logs["accuracy"],) = self._mean([self.right], self.labels)
            self.right, self.labels = 0, 0
        super().log(logs, start_time)

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """Return loss and accuracy on the held-out batches, means over all labels."""
        model, sums, number = self.accelerator.unwrap_model(self.model, keep_torch_compile=False), [0.0, 0.0], 0
        model.eval()
        model.training = True  # the model then computes logits only at labels; its layers stay in eval mode
        with torch.no_grad(), self.accelerator.autocast():
            for place in range(self.args.process_index, len(self.held_out), self.args.world_size):
                batch = self._prepare_inputs(self.held_out[place])
                logits = model(**batch).logits.float()
                labels = _labels(logits, batch["labels"])
                parts = cross_entropy(logits, labels, reduction="sum"), (logits.argmax(-1) == labels).sum()
                sums, number = [a + b.item() for a, b in zip(sums, parts, strict=True)], number + len(labels)
        metrics = dict(zip(("eval_loss", "eval_accuracy"), self._mean(sums, number), strict=True))
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def _labels(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the labels that are not -100, in the order of the rows of logits: shape (n,).

    The host knows how many there are from the logits. Indexing by a mask would wait for the device to count them.
    """
    labels = labels.flatten()
    return labels[nonzero(labels != IGNORED, len(logits)).squeeze(1)]


class _LastStep(TrainerCallback):
    """Callback that logs and evaluates the last steps of a stage too."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= state.max_steps:
            control.should_log, control.should_evaluate = True, args.eval_strategy != "no"
