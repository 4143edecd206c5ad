"""Training with transformers' Trainer, from the last checkpoint if there is one, with a line per evaluation."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import datasets
import torch
from tqdm import tqdm
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainerState
from transformers.trainer_callback import ProgressCallback

from modeling_roformer.output.console import no_transformers_bar

from ..errors import TrainingError
from ..runs.run_folder import last_checkpoint

_TIMINGS = ("runtime", "samples_per_second", "steps_per_second")  # not shown


@contextmanager
def one_bar() -> Iterator[None]:
    """Hide all progress bars in a block but that of `train_or_resume`, and on a terminal those of `datasets`."""
    hide = not sys.stderr.isatty() and datasets.are_progress_bars_disabled() is False
    with no_transformers_bar():
        try:
            if hide:
                datasets.disable_progress_bars()
            yield
        finally:
            if hide:
                datasets.enable_progress_bars()


def train_or_resume(trainer: Trainer) -> None:
    """Train to the end, from the last checkpoint in the trainer's folder if it has one.

    A resumed training ends with the same weights as one that was not interrupted, if nothing else changed. Patience is
    resumed too. Shows one bar, which disappears at the end, and one line per evaluation, or per log entry without.

    Raises a TrainingError if the best checkpoint so far is missing.
    """
    trainer.args.restore_callback_states_from_checkpoint = True
    trainer.args.dataloader_pin_memory &= torch.accelerator.is_available()  # torch would warn of it in each evaluation
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(_BestCheckpoint())
    trainer.add_callback(_Lines())
    _remove_parts(Path(trainer.args.output_dir))
    checkpoint = last_checkpoint(trainer.args.output_dir)
    if checkpoint is not None:
        print(f"resumes from {checkpoint}")
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        if _has_ended(state):
            trainer.args.max_steps = state.global_step  # Trainer itself would train for another epoch
    trainer.train(resume_from_checkpoint=checkpoint)


def _remove_parts(folder: Path) -> None:
    """Remove incomplete checkpoints, which Trainer would count."""
    for checkpoint in folder.glob("checkpoint-*"):
        if not (checkpoint / "trainer_state.json").exists() or not any(checkpoint.glob("model*.safetensors")):
            shutil.rmtree(checkpoint)


def _has_ended(state: TrainerState) -> bool:
    """Return whether a checkpoint is the last one, because patience has run out."""
    patience = state.stateful_callbacks.get(EarlyStoppingCallback.__name__)
    if not isinstance(patience, dict):
        return False
    return patience["attributes"]["early_stopping_patience_counter"] >= patience["args"]["early_stopping_patience"]


class _BestCheckpoint(TrainerCallback):
    """Callback that sets the path of the best checkpoint, which was relative to the working directory of its run."""

    def on_train_begin(self, args, state, control, **kwargs):
        if not (args.load_best_model_at_end and state.best_global_step):
            return
        place = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
        if not place.is_dir():
            raise TrainingError(f"{place}, the best checkpoint so far, is missing: train in another folder")
        state.best_model_checkpoint = str(place)


class _Lines(TrainerCallback):
    """Callback that prints a line per evaluation, and shows a bar of the steps on a terminal."""

    def __init__(self):
        self.bar: tqdm | None = None
        self.loss: float | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            options = {"initial": state.global_step, "total": state.max_steps, "dynamic_ncols": True}
            self.bar = tqdm(**options, leave=False, disable=None)  # None: off where stderr is no terminal

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args, state, control, logs, **kwargs):
        self.loss = logs.get("loss", self.loss)
        if "loss" in logs and args.eval_strategy == "no":
            self._print(state, {})

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        named = {name.removeprefix("eval_").replace("_", " "): value for name, value in metrics.items()}
        shown = {f"validation {name}": value for name, value in named.items()}
        self._print(state, {name: value for name, value in shown.items() if _is_shown(name)})

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def _print(self, state: TrainerState, measured: dict[str, float]) -> None:
        if self.bar is not None:  # not after the training
            figures = {"training loss": self.loss} if self.loss is not None else {}
            text = ", ".join(f"{name} {value:.3f}" for name, value in {**figures, **measured}.items())
            tqdm.write(f"epoch {state.epoch:.4g}, step {state.global_step:,}: {text}", file=sys.stdout)


def _is_shown(name: str) -> bool:
    return not any(name.endswith(timing.replace("_", " ")) for timing in _TIMINGS) and name != "validation epoch"
