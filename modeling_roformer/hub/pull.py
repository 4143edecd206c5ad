"""Fetch a repository of the Hugging Face Hub into a folder, and check every file of it."""

from dataclasses import dataclass
from pathlib import Path

from ..output.output_folder import output_folder


@dataclass(frozen=True)
class Pulled:
    """What `pull` wrote: where, which commit, how many files and bytes."""

    directory: Path
    commit: str
    files: int
    size: int

    def __str__(self) -> str:
        return f"{self.directory}: {self.files} files, {self.size:,} bytes, commit {self.commit}, every sum checked"


def pull(
    repo_id: str,
    directory: str | Path,
    *,
    revision: str | None = None,
    force: bool = False,
    local_files_only: bool = False,
    token: str | None = None,
    progress: bool = False,
) -> Pulled:
    """Fetches a repository, and checks every file.

    `directory` appears when all of it is there and right, and not before. The files go through huggingface_hub's cache:
    what arrived before an interruption is not fetched again (a file that was half there is: huggingface_hub drops it),
    and `from_pretrained(repo_id)` finds them there. A file that the cache holds with another content is fetched anew.

    Args:
        repo_id: `name/repository`.
        directory: the folder to make.
        revision: a branch, tag or commit; `main` where None.
        force: replace `directory` where it exists, in one step.
        local_files_only: take the files from the cache, without a connection, as HF_HUB_OFFLINE=1 does too.
        token: where None, that of HF_TOKEN or of `hf auth login`. It appears in no error.
        progress: show a bar on stderr.

    Raises:
        FileExistsError: where `directory` is not empty, and `force` is not given.
        HubError: where the Hub refused, could not be reached, or sent something else than it lists; and offline, where
            the cache does not hold all of it. Nothing has been written then.

    Example:
        >>> pull("me/my-model", "my-model").commit
        '8f3c1a…'
    """
    with output_folder(directory, force=force) as folder:
        from .repository import fetch  # huggingface_hub, for which a folder that cannot be made need not wait

        commit, sizes = fetch(repo_id, folder, revision, local_files_only, token, progress)
    return Pulled(Path(directory), commit, len(sizes), sum(sizes))
