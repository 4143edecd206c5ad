"""Trainers that write each checkpoint whole or not at all, and resume from the last one."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import torch
from tqdm.auto import tqdm
from transformers import ProgressCallback, Trainer, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME

from ...output.console import sentence_of
from ..errors import TrainingError
from .checkpoints import (
    atomic_checkpoint,
    average_of_last,
    checkpoint_to_resume,
    checkpoints,
    last_complete,
    remove_all_but,
    unfinished,
)
from .device import on_main_process
from .finite import FiniteTraining
from .resuming import check_same

RUN = "run.json"  # of a checkpoint, or of the model of a stage
_LEAST = 2  # checkpoints to keep: if the last one is damaged, the one before it is left


class Checkpointing(FiniteTraining):
    """Mixin for a Trainer: checkpoints appear whole or not at all, and `train_or_resume` resumes from the last one.

    The latest `args.save_total_limit` checkpoints are kept, and at least two. Weights are saved only if they are finite
    (see `FiniteTraining`).

    `run` has settings that tell the run from others, as JSON values. Checkpoints record them, and `train_or_resume`
    raises a TrainingError if those of the last one differ.
    """

    def __init__(self, *args, run: Mapping | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.run = json.loads(json.dumps(run or {}))
        if self.pop_callback(ProgressCallback):
            self.add_callback(_ProgressBar)
        self.add_callback(_IntervalsOfCommand)

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints."""
        return Path(self.args.output_dir)

    @cached_property
    def checkpoint(self) -> Path | None:
        """The checkpoint from which training resumes, or None. All processes must read this property together, since
        the main process verifies it for all."""
        return on_main_process(self._verified_checkpoint)

    def _verified_checkpoint(self) -> Path | None:
        checkpoint = checkpoint_to_resume(self.folder)
        if checkpoint is not None:
            self._refuse_other_run(checkpoint)
        return checkpoint

    def train_or_resume(self) -> None:
        """Train to the last step, from the last undamaged checkpoint if there is one."""
        state = None
        if self.checkpoint is not None:
            state = TrainerState.load_from_json(str(self.checkpoint / TRAINER_STATE_NAME))
            self.load_extra_state(self.checkpoint)
        if state is None or state.global_step < self.args.max_steps or self.is_fsdp_enabled:
            self.train(resume_from_checkpoint=self.checkpoint and str(self.checkpoint))
        else:  # Trainer would take one more step
            self._load_from_checkpoint(str(self.checkpoint))
            self.state = state
            self.require_finite_weights()  # earlier versions did not check them

    def average_of_last(self, number: int) -> dict[str, torch.Tensor]:
        """Verify and average the last checkpoints of this run, see `checkpoints.average_of_last`."""
        average = average_of_last(self.folder, number)
        for checkpoint in checkpoints(self.folder)[:number]:
            self._refuse_other_run(checkpoint)
        return average

    def _refuse_other_run(self, checkpoint: Path) -> None:
        """Raise a TrainingError if a verified checkpoint has the settings of another run. Earlier versions recorded
        none."""
        if self.run and (checkpoint / RUN).is_file():
            check_same(checkpoint, self.read_run(checkpoint / RUN), self.run, f"or move {checkpoint} away")

    def read_run(self, path: Path) -> dict:
        """Return the settings that a checkpoint records; a hook for subclasses."""
        return json.loads(path.read_text(encoding="utf-8"))

    def record_run(self, folder: Path) -> None:
        """Write the settings of the run into a folder of weights."""
        if self.run and self.is_world_process_zero():
            (folder / RUN).write_text(json.dumps(self.run, indent=1), encoding="utf-8")

    def _get_output_dir(self, trial) -> str:
        """Return the folder into which Trainer writes a checkpoint."""
        return str(unfinished(self.folder / "checkpoint").parent)

    def _save_checkpoint(self, model, trial) -> None:
        self.require_finite_weights()  # the loss of this step was computed before its update
        with self.writing(self.folder / f"checkpoint-{self.state.global_step}") as folder:
            super()._save_checkpoint(model, trial)
            self.save_extra_state(folder)
            self.record_run(folder)
        if self.is_world_process_zero() and self.args.save_total_limit is not None:
            remove_all_but(self.folder, max(_LEAST, self.args.save_total_limit))

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        super()._save(output_dir, state_dict)
        # Trainer's arguments name folders of this machine, and nothing reads them.
        (Path(output_dir or self.args.output_dir) / TRAINING_ARGS_NAME).unlink(missing_ok=True)

    def save_extra_state(self, folder: Path) -> None:
        """Write more files into a checkpoint; a hook for subclasses."""

    def load_extra_state(self, folder: Path) -> None:
        """Read what `save_extra_state` wrote."""

    @contextmanager
    def writing(self, path: Path) -> Iterator[Path]:
        """Write a folder with `atomic_checkpoint` in all processes. On failure, raise a TrainingError that says what is
        left."""
        try:
            with atomic_checkpoint(path, self.is_world_process_zero(), self.accelerator.wait_for_everyone) as folder:
                yield folder
        except Exception as error:  # OSError, or an error of torch or safetensors
            reason = getattr(error, "strerror", None) or sentence_of(error)
            there = next(place for place in (self.folder, *self.folder.absolute().parents) if place.exists())
            free = shutil.disk_usage(there).free / 1e6
            last = last_complete(self.folder) or "the first step, since there is no checkpoint yet"
            then = f"the same command continues from {last}"
            raise TrainingError(
                f"{path} cannot be written: {reason} ({free:,.1f} MB free on that disk); {then}"
            ) from error

    # Trainer's own loading errors name no file.

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model=None) -> None:
        with _naming(resume_from_checkpoint, "weights"):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _issue_warnings_after_load(self, load_result) -> None:
        """Raise an error in place of Trainer's warning: missing weights would stay random."""
        tied = getattr(self.accelerator.unwrap_model(self.model), "all_tied_weights_keys", {})
        if missing := [name for name in load_result.missing_keys if name not in tied]:
            raise TrainingError(f"{missing[0]} is missing")
        if load_result.unexpected_keys:
            raise TrainingError(f"the model has no {load_result.unexpected_keys[0]}")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _naming(checkpoint, "optimizer.pt or scheduler.pt"):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_scaler(self, checkpoint: str | None) -> None:
        with _naming(checkpoint, "scaler.pt"):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with _naming(checkpoint, "the random number generators"):
            super()._load_rng_state(checkpoint)


@contextmanager
def _naming(checkpoint: str | None, what: str) -> Iterator[None]:
    """Raise a TrainingError that names the checkpoint if the block raises."""
    try:
        yield
    except Exception as error:
        then = "Move that folder away to resume from the checkpoint before it"
        raise TrainingError(f"{checkpoint}: cannot load {what}: {sentence_of(error)}. {then}") from error


class _IntervalsOfCommand(TrainerCallback):
    """Callback that saves, evaluates and logs as often as the command says. Trainer takes the steps of the
    checkpoint."""

    def on_train_begin(self, args, state, control, **kwargs):
        state.compute_steps(args, state.max_steps)


class _ProgressBar(ProgressCallback):
    """Progress bar that begins at the checkpoint. Trainer's begins at 0, and counts the steps before as steps of a
    moment."""

    def on_train_begin(self, args, state, control, **kwargs):
        self.current_step = state.global_step
        if state.is_world_process_zero:
            self.training_bar = tqdm(total=state.max_steps, initial=state.global_step, dynamic_ncols=True)


class CheckpointingTrainer(Checkpointing, Trainer):
    """Trainer with atomic checkpoints."""
