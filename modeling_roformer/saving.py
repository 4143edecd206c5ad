"""Saving over an earlier save, in a folder or a repository: replaced weights are removed, other files stay."""

import inspect
import os
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import torch
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from transformers import PreTrainedModel

from .docstrings import wraps
from .file_modes import give_new_modes
from .locks import locked_folder, remove_abandoned
from .weight_files import is_index, replaced

Model = PreTrainedModel if TYPE_CHECKING else object
SIGNATURE = inspect.signature(PreTrainedModel.save_pretrained)


class SavedOver(Model):
    """Mixin, listed before `PreTrainedModel`, that removes the weights which a save replaces."""

    @wraps(PreTrainedModel.save_pretrained)
    def save_pretrained(self, save_directory, *args, **kwargs):
        given = SIGNATURE.bind(self, save_directory, *args, **kwargs)
        given.apply_defaults()
        is_distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        writes = given.arguments["is_main_process"] and not (is_distributed and torch.distributed.get_rank())
        if given.arguments["distributed_checkpoint"] or not writes or os.path.isfile(save_directory):
            super().save_pretrained(save_directory, *args, **kwargs)
            return
        folder, pushes = Path(save_directory), given.arguments["push_to_hub"]
        state_dict = given.arguments["state_dict"]
        folder.mkdir(parents=True, exist_ok=True)
        remove_abandoned(folder.glob(".saving-*"))

        def save(push_to_hub: bool) -> None:
            # A failed save changes nothing. Links, as in huggingface_hub's cache, are replaced and not followed.
            with locked_folder(lambda: Path(mkdtemp(dir=folder, prefix=".saving-"))) as temporary:
                copy = None if state_dict is None else dict(state_dict)  # transformers empties it
                given.arguments.update(save_directory=str(temporary), push_to_hub=push_to_hub, state_dict=copy)
                super(SavedOver, self).save_pretrained(*given.args[1:], **given.kwargs)
                if not push_to_hub:
                    give_new_modes(temporary)
                    _move(temporary, folder)

        save(push_to_hub=False)
        if pushes:  # after the folder is complete
            given.arguments["kwargs"].setdefault("repo_id", folder.resolve().name)
            save(push_to_hub=True)

    def _upload_modified_files(
        self, working_dir, repo_id, files_timestamps, commit_message=None, token=None, revision=None, **options
    ):
        """Upload the files that transformers wrote into a folder, and delete those they replace, in one commit."""
        api = HfApi(token=token)
        if revision and not options.get("create_pr") and not revision.startswith("refs/pr/"):
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        folder = Path(working_dir)
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        operations = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in files.items()]
        there = api.list_repo_files(repo_id, revision=revision)
        return api.create_commit(
            repo_id,
            [*operations, *map(CommitOperationDelete, replaced(there, files))],
            commit_message=commit_message or "Upload model",
            revision=revision,
            **options,
        )


def _move(source: Path, folder: Path) -> None:
    """Move a save over an earlier one, and remove the weights that it replaces."""
    written = sorted(os.listdir(source), key=is_index)
    for name in filter(is_index, written):  # first, so that an interruption leaves no index over shards of two models
        (folder / name).unlink(missing_ok=True)
    for name in written:
        (source / name).replace(folder / name)
    for name in replaced(os.listdir(folder), written):
        (folder / name).unlink()
