"""Fetch a repository from the Hugging Face Hub into a folder, and check every file of it.

huggingface_hub compares only sizes: it accepts, and keeps in its cache, a file whose bytes changed in transit or on
disk. Here every small file must have git's id, and every large one the SHA-256, that the Hub states.
"""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants, get_cached_repo_tree, snapshot_download
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id

from modeling_roformer.files.atomic_folder import output_folder

from .errors import HubError, hub_bars, hub_error, usable_token


@dataclass(frozen=True)
class Pulled:
    """The result of `pull`: the folder, the commit, the number of files and their size in bytes."""

    directory: Path
    commit: str
    files: int
    size: int

    def __str__(self) -> str:
        size = f"{self.files} files, {self.size:,} bytes"
        return f"{self.directory}: {size}, commit {self.commit}, every checksum verified"


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

    The files go through huggingface_hub's cache. A file with other bytes is removed from it, and fetched again.

    Args:
        repo_id: `name/repository`.
        directory: the folder to create. It appears only when it is complete and correct.
        revision: a branch, tag or commit; `main` if None.
        force: replace `directory` if it exists, in one step.
        local_files_only: take an earlier `pull` from the cache, without a connection, as HF_HUB_OFFLINE=1 does too.
        token: if None, the one from HF_TOKEN or `hf auth login`. It never appears in errors.
        progress: show huggingface_hub's bars on stderr.

    Raises:
        FileExistsError: `directory` is not empty, and `force` is not given.
        HubError: the Hub refused, could not be reached, or sent other bytes; or, offline, the cache lacks a file.
    """
    validate_repo_id(repo_id)
    token = usable_token(token)
    with output_folder(directory, force=force) as folder:
        try:
            with hub_bars(progress):
                offline = local_files_only or constants.HF_HUB_OFFLINE
                if not offline:  # or huggingface_hub would take an older commit from its cache if the Hub fails
                    revision = HfApi(token=token).resolve_revision(repo_id, revision=revision)
                snapshot = Path(snapshot_download(repo_id, revision=revision, local_files_only=offline, token=token))
                files = get_cached_repo_tree(repo_id, revision=snapshot.name)
                for file in files:
                    _copy(file, snapshot, folder)
        except Exception as error:  # of huggingface_hub, of its HTTP library, and of the system; all become a HubError
            raise hub_error(error, f"nothing of {repo_id} was written", token) from None
    return Pulled(Path(directory), snapshot.name, len(files), sum(file.size for file in files))


def _copy(file: RepoFile, snapshot: Path, folder: Path) -> None:
    """Copy a file; raise HubError, and remove it from the cache, if it has other bytes than the Hub lists."""
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    cached = snapshot / file.path
    shutil.copyfile(cached, target)
    # In the cache, a link points to a file that is named by the checksum that the Hub sent.
    if not {file.blob_id, cached.resolve().name} & set(checksums(target)):
        cached.resolve().unlink()
        cached.unlink(missing_ok=True)
        raise HubError(
            f"{file.path} does not have the checksum {file.blob_id} that the Hub lists; it was removed from "
            "the cache, so pull again"
        )


def checksums(path: Path) -> Iterator[str]:
    """Yield git's id of a file, its SHA-256, and git's id of the pointer with this SHA-256 (Git LFS, version 1)."""
    size = path.stat().st_size
    with open(path, "rb") as content:
        yield hashlib.file_digest(content, lambda: hashlib.sha1(b"blob %d\0" % size)).hexdigest()
        content.seek(0)
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    yield sha256
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
    yield hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest()
