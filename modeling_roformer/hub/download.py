"""Fetch a repository from the Hugging Face Hub into a folder, and check every file of it."""

from dataclasses import dataclass
from pathlib import Path

from ..files.atomic_folder import output_folder


@dataclass(frozen=True)
class Pulled:
    """The result of `pull`: the folder, the commit, the number of files and their size in bytes."""

    directory: Path
    commit: str
    files: int
    size: int

    def __str__(self) -> str:
        return (
            f"{self.directory}: {self.files} files, {self.size:,} bytes, commit {self.commit}, every checksum verified"
        )


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
    """Fetch a repository, and check every file.

    `directory` appears only when it is complete and correct. The files go through huggingface_hub's cache, where
    `from_pretrained(repo_id)` finds them: files that arrived before an interruption are not fetched again (partial ones
    are). A cached file with different content is fetched again.

    Args:
        repo_id: `name/repository`.
        directory: the folder to create.
        revision: a branch, tag or commit; `main` if None.
        force: replace `directory` if it exists, in one step.
        local_files_only: take the files from the cache, without a connection, as HF_HUB_OFFLINE=1 does too.
        token: if None, the one from HF_TOKEN or `hf auth login`. It never appears in errors.
        progress: show a bar on stderr.

    Raises:
        FileExistsError: `directory` is not empty, and `force` is not given.
        HubError: the Hub refused, could not be reached, or sent other bytes than it lists; or, offline, the cache does
            not have all files. Nothing has been written.

    Example:
        >>> pull("me/my-model", "my-model").commit
        '8f3c1a…'
    """
    with output_folder(directory, force=force) as folder:
        from .repository import fetch  # imports huggingface_hub, which a bad folder need not wait for

        commit, sizes = fetch(repo_id, folder, revision, local_files_only, token, progress)
    return Pulled(Path(directory), commit, len(sizes), sum(sizes))
