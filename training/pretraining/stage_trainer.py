"""transformers' Trainer for one stage of masked language modelling."""

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import TrainerCallback

from ..runs.checkpointing import CheckpointingTrainer
from ..runs.checkpoints import last_whole
from ..runs.finite import NotFinite
from ..runs.sharding import shard
from .masking import IGNORED
from .muon import MuonAndAdamW

_SUMS = "sums.json"


class StageTrainer(CheckpointingTrainer):
    """A CheckpointingTrainer with what a long pre-training needs besides.

    Beside the loss it logs the accuracy, both over all labels since the last entry, and over all processes. It stops where
    a loss or a gradient is not finite, before that has changed a weight. A signal in `stop` saves a checkpoint and ends the
    stage.

    Args:
        stop: what says that the run is to end; see `StopSignal`.
        held_out: a sequence of batches of `MaskingCollator` for `evaluate`, or None.
        saved_fields: what saved models and checkpoints have in their configuration where training has something else.
    """

    def __init__(
        self, *args, stop: "StopSignal", held_out: Sequence | None = None, saved_fields: dict | None = None, **kwargs
    ):
        super().__init__(*args, eval_dataset=held_out, **kwargs)
        self.held_out = held_out
        self.saved_fields = saved_fields or {}
        self.sums = [0.0, 0.0, 0.0]  # loss and right answers over labels, and their number, since the last entry
        self.add_callback(_StopAndSave(stop, self))

    def fail(self, what: str) -> None:
        last = last_whole(self.folder)
        kept = f"the last whole checkpoint is {last}" if last else "the stage had no checkpoint yet"
        raise NotFinite(
            f"{what} of {self.folder.name} in {self.folder.parent}; {kept}: give the stage a lower learning_rate or a longer warmup, and name another "
            "folder"
        )

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        model = self.model if model is None else model
        if self.is_fsdp_enabled:
            shard(model, self.accelerator)
        if self.optimizer is None and self.train_dataset.stage.optimizer == "muon":
            self.optimizer = MuonAndAdamW(
                model,
                self.get_decay_parameter_names(model),
                self.args.learning_rate,
                self.args.weight_decay,
                (self.args.adam_beta1, self.args.adam_beta2),
                self.args.adam_epsilon,
            )
        return super().create_optimizer(model)

    # Loss and accuracy

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if model.training:
            has_label = inputs["labels"] != IGNORED
            labels, logits = inputs["labels"][has_label], outputs["logits"].detach()
            right = (logits if logits.dim() == 2 else logits[has_label]).argmax(-1) == labels
            mean, right = torch.stack([loss.detach().float(), right.sum().float()]).cpu().tolist()
            # A part's loss is its share in the mean over the labels of the batch, times the processes that average it.
            total = mean * float(num_items_in_batch) / self.accelerator.num_processes
            self.sums = [a + b for a, b in zip(self.sums, (total, right, len(labels)), strict=True)]
        return (loss, outputs) if return_outputs else loss

    def _reduced(self, values: Sequence[float]) -> list[float]:
        """The sums over all processes."""
        if self.accelerator.num_processes == 1:
            return list(values)
        values = torch.tensor(values, dtype=torch.float64, device=self.accelerator.device)
        return self.accelerator.reduce(values, "sum").tolist()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            loss, right, labels = self._reduced(self.sums)
            self.sums = [0.0, 0.0, 0.0]
            logs = {**logs, "loss": loss / labels, "accuracy": right / labels}
            logs["passes"] = (
                self.state.global_step * self.train_dataset.stage.batch_size / len(self.train_dataset.pieces)
            )
        super().log(logs, start_time)

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """Loss and accuracy over the masks of the held-out batches, which are the same ones each time."""
        model, sums = self.accelerator.unwrap_model(self.model, keep_torch_compile=False), [0.0, 0.0, 0.0]
        model.eval()
        model.training = True  # of the model alone, which then computes logits where there are labels; without dropout
        with torch.no_grad(), self.accelerator.autocast():
            for first in range(0, len(self.held_out), self.args.world_size):
                # All processes compute equally often, with nothing to predict after the last batch: a sharded model needs all.
                number = first + self.args.process_index
                batch = self._prepare_inputs(self.held_out[min(number, len(self.held_out) - 1)])
                if number >= len(self.held_out):
                    batch["labels"] = torch.full_like(batch["labels"], IGNORED)
                labels = batch["labels"][batch["labels"] != IGNORED]
                logits = model(**batch).logits.float()
                loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
                part = loss.item(), (logits.argmax(-1) == labels).sum().item(), len(labels)
                sums = [a + b for a, b in zip(sums, part, strict=True)]
        loss, right, labels = self._reduced(sums)
        metrics = {"eval_loss": loss / labels, "eval_accuracy": right / labels}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # Checkpoints

    def _save_checkpoint(self, model, trial) -> None:
        self.sums = self._reduced(self.sums)
        super()._save_checkpoint(model, trial)
        if not self.is_world_process_zero():
            self.sums = [0.0, 0.0, 0.0]

    def save_more(self, folder: Path) -> None:
        if self.is_world_process_zero():
            (folder / _SUMS).write_text(json.dumps(self.sums, allow_nan=False), encoding="utf-8")

    def load_more(self, folder: Path) -> None:
        if self.is_world_process_zero():  # whose file has those of all processes
            self.sums = json.loads((folder / _SUMS).read_text(encoding="utf-8"))

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        if state_dict is not None:  # gathered from shards, where tied weights have become two
            tied = self.model.all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        config = self.accelerator.unwrap_model(self.model, keep_torch_compile=False).config
        training_fields = {name: getattr(config, name) for name in self.saved_fields}
        config.update(self.saved_fields)
        super()._save(output_dir, state_dict)
        config.update(training_fields)


class StopSignal:
    """Whether SIGTERM or Ctrl-C has asked the run to end: `number` is the signal's, 0 before.

    While it is `listening`, it takes them in place of the system; a second Ctrl-C interrupts at once. A signal that the
    process ignores, as the background jobs of a shell ignore Ctrl-C, stays ignored.
    """

    def __init__(self) -> None:
        self.number = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # which alone may do this
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
        for number in before:
            signal.signal(number, self._take)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, _frame) -> None:
        self.number = number
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class _StopAndSave(TrainerCallback):
    """Ends the stage after the step in which a signal has come, with a checkpoint, in all processes after the same one."""

    def __init__(self, stop: StopSignal, trainer: StageTrainer):
        self.stop, self.trainer = stop, trainer

    def on_step_end(self, args, state, control, **kwargs):
        (number,) = self.trainer._reduced([self.stop.number])
        if number:
            self.stop.number = self.stop.number or signal.SIGTERM
            control.should_save = control.should_training_stop = True
        if state.global_step >= state.max_steps:  # the last steps belong in the log
            control.should_log = True
        return control
