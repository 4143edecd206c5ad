"""Trainer for one stage of masked language modelling."""

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed
from accelerate import Accelerator
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import PreTrainedModel, TrainerCallback

from ..errors import TrainingError
from ..runs.checkpointing import CheckpointingTrainer
from ..runs.checkpoints import last_complete
from ..runs.digests import non_default_fields
from ..runs.finite import NotFinite
from .masking import IGNORED
from .muon import MuonAndAdamW

_SUMS = "sums.json"


class StageTrainer(CheckpointingTrainer):
    """CheckpointingTrainer that logs accuracy, evaluates on held-out batches and stops on signals.

    The logged loss and accuracy are means over all labels since the last entry, in all processes. After a signal in
    `stop`, the trainer saves a checkpoint and ends the stage.

    Args:
        stop: receives the signals.
        held_out: a sequence of batches of `MaskingCollator` for `evaluate`, or None.
        saved_fields: fields of the configuration of saved models and checkpoints that differ during training.
    """

    def __init__(
        self, *args, stop: "StopSignal", held_out: Sequence | None = None, saved_fields: dict | None = None, **kwargs
    ):
        super().__init__(*args, eval_dataset=held_out, **kwargs)
        self.held_out = held_out
        self.saved_fields = saved_fields or {}
        self.sums = [0.0, 0.0, 0.0]  # since the last entry: loss, right predictions, number of labels
        self.add_callback(_StopAndSave(stop, self))

    def fail(self, what: str) -> None:
        last = last_complete(self.folder) or "none"
        place = f"{self.folder.name} in {self.folder.parent} (last complete checkpoint: {last})"
        raise NotFinite(f"{what} of {place}: use a lower learning_rate or a longer warmup, and another output folder")

    def read_run(self, path: Path) -> dict:
        recorded = super().read_run(path)
        if "model" not in recorded:
            raise TrainingError(f"{path.parent} is of another script: move it away")
        return {**recorded, "model": non_default_fields(recorded["model"], self.model.config)}  # of this version

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        model = self.model if model is None else model
        if self.is_fsdp_enabled:
            shard(model, self.accelerator)
        if self.optimizer is None and self.train_dataset.stage.optimizer == "muon":
            args, decayed = self.args, self.get_decay_parameter_names(model)
            betas = args.adam_beta1, args.adam_beta2
            self.optimizer = MuonAndAdamW(
                model, decayed, args.learning_rate, args.weight_decay, betas, args.adam_epsilon
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
            # `mean` is this part's share in the mean over all labels of the batch, times the number of processes.
            total = mean * float(num_items_in_batch) / self.accelerator.num_processes
            self.sums = [a + b for a, b in zip(self.sums, (total, right, len(labels)), strict=True)]
        return (loss, outputs) if return_outputs else loss

    def _reduced(self, values: Sequence[float]) -> list[float]:
        """Return the sums over all processes."""
        if self.accelerator.num_processes == 1:
            return list(values)
        values = torch.tensor(values, dtype=torch.float64, device=self.accelerator.device)
        return self.accelerator.reduce(values, "sum").tolist()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            loss, right, labels = self._reduced(self.sums)
            self.sums = [0.0, 0.0, 0.0]
            logs = {**logs, "loss": loss / labels, "accuracy": right / labels}
            examples = self.state.global_step * self.train_dataset.stage.batch_size
            logs["passes"] = examples / len(self.train_dataset.pieces)
        super().log(logs, start_time)

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """Return loss and accuracy on the held-out batches."""
        model, sums = self.accelerator.unwrap_model(self.model, keep_torch_compile=False), [0.0, 0.0, 0.0]
        model.eval()
        model.training = True  # the model then computes logits only at labels; its layers stay in eval mode
        with torch.no_grad(), self.accelerator.autocast():
            for first in range(0, len(self.held_out), self.args.world_size):
                # A sharded model needs all processes for each batch: those without a batch compute one without labels.
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

    def save_extra_state(self, folder: Path) -> None:
        if self.is_world_process_zero():
            (folder / _SUMS).write_text(json.dumps(self.sums, allow_nan=False), encoding="utf-8")

    def load_extra_state(self, folder: Path) -> None:
        if self.is_world_process_zero():  # the file has the sums of all processes
            self.sums = json.loads((folder / _SUMS).read_text(encoding="utf-8"))

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        if state_dict is not None:  # gathered from shards, with two copies of tied weights
            tied = self.model.all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        config = self.accelerator.unwrap_model(self.model, keep_torch_compile=False).config
        training_fields = {name: getattr(config, name) for name in self.saved_fields}
        config.update(self.saved_fields)
        super()._save(output_dir, state_dict)
        config.update(training_fields)


class StopSignal:
    """Receiver of SIGTERM and Ctrl-C. `number` is the signal received, 0 before.

    It handles signals in the block of `listening`; a second Ctrl-C interrupts at once. A signal that the process
    ignores stays ignored, such as Ctrl-C in background jobs of a shell.
    """

    def __init__(self) -> None:
        self.number = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # other threads cannot set handlers
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
        for number in before:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _frame) -> None:
        self.number = number
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class _StopAndSave(TrainerCallback):
    """Callback that saves and ends the stage after the step in which a process received a signal, in all processes."""

    def __init__(self, stop: StopSignal, trainer: StageTrainer):
        self.stop, self.trainer = stop, trainer

    def on_step_end(self, args, state, control, **kwargs):
        (number,) = self.trainer._reduced([self.stop.number])
        if number:
            self.stop.number = self.stop.number or signal.SIGTERM
            control.should_save = control.should_training_stop = True
        if state.global_step >= state.max_steps:  # log and evaluate the last steps too
            control.should_log = True
            control.should_evaluate = self.trainer.held_out is not None
        return control


def shard(model: PreTrainedModel, accelerator: Accelerator) -> None:
    """Shard the weights, gradients and optimizer state of a model over all processes (FSDP2), layer by layer.

    accelerate does not shard a model again. It would put the decoder into a group of its own, and torch refuses the
    bias that the decoder shares with the MLM head in two groups.

    The layers are `model.base_model.encoder.layer`. All processes get the weights of the main process. The
    accelerator's plugin has the options; raise a TrainingError for the first version of FSDP.
    """
    plugin = accelerator.state.fsdp_plugin
    if plugin.fsdp_version != 2:
        raise TrainingError("FSDP 1 is not supported: pass --fsdp_version 2 to accelerate launch")
    plugin.auto_wrap_policy = None  # nothing is left to wrap
    # Checkpoints have full weights, as without sharding.
    plugin.state_dict_config = plugin.optim_state_dict_config = None
    plugin.set_state_dict_type("FULL_STATE_DICT")
    model.to(accelerator.device)
    for tensor in [*model.parameters(), *model.buffers()]:  # as DDP does
        torch.distributed.broadcast(tensor.data, 0)
    options = {
        "mp_policy": plugin.mixed_precision_policy or MixedPrecisionPolicy(),
        "offload_policy": plugin.cpu_offload,
    }
    for layer in model.base_model.encoder.layer:
        fully_shard(layer, reshard_after_forward=plugin.reshard_after_forward, **options)
    fully_shard(model, **options)
