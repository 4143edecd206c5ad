"""What Trainer lacks where a run is stopped and goes on: whole checkpoints alone, and no step too many."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from .checkpoints import last_whole, remove_all_but, unfinished, whole_folder
from .errors import TrainingError


class Checkpointing:
    """For a class that is a Trainer besides. Checkpoints appear whole or not at all, and `train_on` begins at the last of them.

    The latest `args.save_total_limit` stay.

    ```python
    >>> class MyTrainer(Checkpointing, Trainer): pass
    ```
    """

    @property
    def folder(self) -> Path:
        """Where the checkpoints lie."""
        return Path(self.args.output_dir)

    def train_on(self) -> None:
        """From the last whole checkpoint, where there is one, to the end.

        Raises a TrainingError where a checkpoint cannot be written, which says what is left.
        """
        checkpoint = last_whole(self.folder)
        state = None if checkpoint is None else TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        if state is None or state.global_step < self.args.max_steps or self.is_fsdp_enabled:
            self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        else:  # Trainer would take one step more
            self._load_from_checkpoint(str(checkpoint))
            self.state = state

    def _get_output_dir(self, trial) -> str:
        """Where Trainer writes the folder of a checkpoint."""
        return str(unfinished(self.folder / "checkpoint").parent)

    def _save_checkpoint(self, model, trial) -> None:
        with self.writing(self.folder / f"checkpoint-{self.state.global_step}") as folder:
            super()._save_checkpoint(model, trial)
            self.save_more(folder)
        if self.is_world_process_zero():
            remove_all_but(self.folder, self.args.save_total_limit)

    def save_more(self, folder: Path) -> None:
        """What a checkpoint holds beside Trainer's files."""

    @contextmanager
    def writing(self, path: Path) -> Iterator[Path]:
        """`whole_folder` for all processes; raises a TrainingError that says what is left where it cannot be written."""
        try:
            with whole_folder(path, self.is_world_process_zero(), self.accelerator.wait_for_everyone) as folder:
                yield folder
        except Exception as error:  # of the system, of torch or of safetensors
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            free = shutil.disk_usage(self.folder).free / 1e6
            last = last_whole(self.folder)
            raise TrainingError(
                f"{path} cannot be written: {reason} ({free:,.1f} MB are free on that disk); "
                f"{f'{last} is whole' if last else 'there is no other checkpoint of this run'}, and the same command goes "
                "on from there"
            ) from error


class CheckpointingTrainer(Checkpointing, Trainer):
    """Trainer with whole checkpoints."""
