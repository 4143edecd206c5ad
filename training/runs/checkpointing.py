"""What Trainer lacks where a run is stopped and resumed: whole checkpoints alone, and no step too many."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from transformers import Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME

from ...output.console import sentence_of
from ..errors import TrainingError
from .checkpoints import checkpoint_to_resume, last_whole, remove_all_but, unfinished, whole_folder
from .device import by_main_process
from .finite import FiniteTraining

_LEAST = 2  # checkpoints that are kept: the one before is left where the last one is damaged


class Checkpointing(FiniteTraining):
    """For a class that is a Trainer besides. Checkpoints appear whole or not at all, and `train_on` resumes from the last one.

    The latest `args.save_total_limit` stay, and at least two. Weights that are not finite are never saved: see `FiniteTraining`.

    ```python
    >>> class MyTrainer(Checkpointing, Trainer): pass
    ```
    """

    @property
    def folder(self) -> Path:
        """Where the checkpoints lie."""
        return Path(self.args.output_dir)

    @cached_property
    def checkpoint(self) -> Path | None:
        """The checkpoint from which training resumes, or None where there is none; all processes ask for it together.

        The main process reads and verifies it for all. Raises a TrainingError where every checkpoint is damaged.
        """
        return by_main_process(lambda: checkpoint_to_resume(self.folder))

    def train_on(self) -> None:
        """Train from the last good checkpoint, where there is one, to the end.

        Raises a TrainingError where every checkpoint is damaged, or where one cannot be written; the sentence says what is left.
        """
        state = None
        if self.checkpoint is not None:
            state = TrainerState.load_from_json(str(self.checkpoint / TRAINER_STATE_NAME))
            self.load_more(self.checkpoint)
        if state is None or state.global_step < self.args.max_steps or self.is_fsdp_enabled:
            self.train(resume_from_checkpoint=self.checkpoint and str(self.checkpoint))
        else:  # Trainer would take one step more
            self._load_from_checkpoint(str(self.checkpoint))
            self.state = state
            self.require_finite_weights()  # an older version may have saved others

    def _get_output_dir(self, trial) -> str:
        """Where Trainer writes the folder of a checkpoint."""
        return str(unfinished(self.folder / "checkpoint").parent)

    def _save_checkpoint(self, model, trial) -> None:
        self.require_finite_weights()  # the loss of this step was computed before its update
        with self.writing(self.folder / f"checkpoint-{self.state.global_step}") as folder:
            super()._save_checkpoint(model, trial)
            self.save_more(folder)
        if self.is_world_process_zero() and self.args.save_total_limit is not None:
            remove_all_but(self.folder, max(_LEAST, self.args.save_total_limit))

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        super()._save(output_dir, state_dict)
        # Trainer's arguments with the folders of whoever trains; nothing reads them.
        (Path(output_dir or self.args.output_dir) / TRAINING_ARGS_NAME).unlink(missing_ok=True)

    def save_more(self, folder: Path) -> None:
        """Write what a checkpoint holds beside Trainer's files."""

    def load_more(self, folder: Path) -> None:
        """Read what `save_more` has written."""

    @contextmanager
    def writing(self, path: Path) -> Iterator[Path]:
        """`whole_folder` for all processes; raises a TrainingError that says what is left where it cannot be written."""
        try:
            with whole_folder(path, self.is_world_process_zero(), self.accelerator.wait_for_everyone) as folder:
                yield folder
        except Exception as error:  # of the system, of torch or of safetensors
            reason = getattr(error, "strerror", None) or sentence_of(error)
            there = next(place for place in (self.folder, *self.folder.absolute().parents) if place.exists())
            free = shutil.disk_usage(there).free / 1e6
            last = last_whole(self.folder)
            raise TrainingError(
                f"{path} cannot be written: {reason} ({free:,.1f} MB are free on that disk); "
                + (
                    f"{last} is whole, and the same command resumes from it"
                    if last
                    else "there is no checkpoint yet, so the same command starts this training from its first step"
                )
            ) from error

    # What Trainer loads, whose own words name no file

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model=None) -> None:
        with _loading(resume_from_checkpoint, "the weights"):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _issue_warnings_after_load(self, load_result) -> None:
        """In place of a warning: weights that the checkpoint lacks would stay those of a fresh model."""
        tied = getattr(self.accelerator.unwrap_model(self.model), "all_tied_weights_keys", {})
        if missing := [name for name in load_result.missing_keys if name not in tied]:
            raise TrainingError(f"they lack {missing[0]}")
        if load_result.unexpected_keys:
            raise TrainingError(f"the model has no {load_result.unexpected_keys[0]}")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _loading(checkpoint, "optimizer.pt or scheduler.pt"):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_scaler(self, checkpoint: str | None) -> None:
        with _loading(checkpoint, "scaler.pt"):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with _loading(checkpoint, "the state of the random generators"):
            super()._load_rng_state(checkpoint)


@contextmanager
def _loading(checkpoint: str | None, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise TrainingError(
            f"{checkpoint} cannot be loaded: {what} do not fit this run, or are damaged ({sentence_of(error)}). Move that "
            "folder away: the same command then resumes from the checkpoint before it"
        ) from error


class CheckpointingTrainer(Checkpointing, Trainer):
    """Trainer with whole checkpoints."""
