"""Training with transformers' Trainer, from the last checkpoint if there is one, with a line per evaluation."""

import shutil
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainerState
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_utils import has_length

from modeling_roformer.output.console import no_transformers_bar
from modeling_roformer.output.progress import bars_are_shown

from ..errors import TrainingError
from ..runs.run_folder import last_checkpoint

_TIMINGS = ("runtime", "samples_per_second", "steps_per_second")  # not shown


def one_bar() -> AbstractContextManager[None]:
    """Return a block that hides transformers' own progress bars, which would mix with that of `train_or_resume`."""
    return no_transformers_bar()


def train_or_resume(trainer: Trainer) -> None:
    """Train to the end, from the last checkpoint in the trainer's folder if it has one.

    A resumed training ends with the same weights as one that was not interrupted, if nothing else changed. Patience is
    resumed too. Shows one bar, which disappears at the end, and in a block of `exit_on_error` a line now and then where
    stderr is not a terminal. Prints a line per evaluation, or per log entry without.

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
    """Callback that prints a line per evaluation, and shows a bar of the steps and one of each evaluation."""

    def __init__(self):
        self.bar: tqdm | None = None
        self.evaluation: tqdm | None = None
        self.loss: float | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.bar = _bar("training", state.max_steps, initial=state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs):
        if state.is_world_process_zero and has_length(eval_dataloader):
            if self.evaluation is None:
                self.evaluation = _bar("evaluating", len(eval_dataloader))
            self.evaluation.update()

    def on_predict(self, *args, **kwargs):
        if self.evaluation is not None:
            self.evaluation.close()
            self.evaluation = None

    def on_log(self, args, state, control, logs, **kwargs):
        self.loss = logs.get("loss", self.loss)
        if "loss" in logs and args.eval_strategy == "no":
            self._print(state, {})

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        self.on_predict()
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


def _bar(what: str, total: int, initial: int = 0) -> tqdm:
    return tqdm(desc=what, total=total, initial=initial, dynamic_ncols=True, leave=False, disable=not bars_are_shown())


def _is_shown(name: str) -> bool:
    return not any(name.endswith(timing.replace("_", " ")) for timing in _TIMINGS) and name != "validation epoch"
