"""A repository on the Hub or in the cache; every file is checked as it is copied.

huggingface_hub compares only sizes: it accepts, and keeps in its cache, a file whose bytes changed in transit or on
disk. Here every large file must have the SHA-256 that the Hub lists and that its ETag names, and every other file the
git blob id.
"""

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import (
    HfApi,
    constants,
    get_cached_repo_tree,
    get_hf_file_metadata,
    hf_hub_url,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import CachedRepoTreeNotFoundError, LocalEntryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id

from ..output.console import byte_progress
from .checksums import SUM, Sums, sums_of
from .client import Advance, bar_class, hub_bars, usable_token
from .errors import BROKEN_CONNECTION, HubError, hub_error, shown
from .model_folder import check_model_folder
from .paths import check_names
from .retries import RetryBudget, clock, retrying


@dataclass(frozen=True)
class _File:
    """A file of the repository, and the checksum of its content."""

    name: str
    size: int
    sum: str | None


def fetch(
    repo_id: str, folder: Path, revision: str | None, local_files_only: bool, token: str | None, progress: bool
) -> tuple[str, list[int]]:
    """Copy every file of a repository into a folder; return the commit, and the size of each file in bytes.

    Arguments and errors are those of `pull`.
    """
    validate_repo_id(repo_id)
    token = usable_token(token)
    offline = local_files_only or constants.HF_HUB_OFFLINE
    with byte_progress(progress) as bar, hub_bars(False):
        task = bar.add_task("looking", total=None)
        try:
            with retrying() as budget:
                source = _Cache(repo_id, revision) if offline else _Hub(repo_id, revision, token, budget)
                check_names(file.name for file in source.files)
                size = sum(file.size for file in source.files)
                bar.update(task, description="fetching and checking", total=2 * size)
                for file in source.files:
                    target = folder / file.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source.copy(file, target, lambda count: bar.advance(task, count))
                source.finish()
        except Exception as error:
            raise hub_error(error, repo_id, "read", "nothing was written", token) from shown(error, token)
    return source.commit, [file.size for file in source.files]


class _Hub:
    """A repository on the Hub, whose files are fetched through the cache."""

    def __init__(self, repo_id: str, revision: str | None, token: str | None, budget: RetryBudget):
        self.repo_id, self.api, self.budget = repo_id, HfApi(token=token), budget
        self.commit = self.api.resolve_revision(repo_id, revision=revision).resolved
        tree = self.api.list_repo_tree(repo_id, recursive=True, revision=self.commit)
        self.files = [
            _File(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)
            for entry in tree
            if isinstance(entry, RepoFile)
        ]

    def copy(self, file: _File, target: Path, advance: Advance) -> None:
        self._check_etag(file)
        cached = try_to_load_from_cache(self.repo_id, file.name, revision=self.commit)
        if isinstance(cached, str):
            advance(file.size)
            if _copy(Path(cached), target, advance).fits(file.sum):
                return
        # If the cache has another content, the file was damaged before or after it was cached.
        path = self._fetch(file, advance, anew=isinstance(cached, str))
        sums = _copy(path, target, advance)
        if not sums.fits(file.sum):
            _forget(path)
            raise HubError(
                f"{file.name} did not arrive as the Hub lists it: the checksum of its {sums.size:,} bytes is not "
                f"{file.sum}"
            )

    def finish(self) -> None:
        """Record in the cache which files belong to this commit, so that it can be pulled without a connection."""
        checked = [glob.escape(file.name) for file in self.files]
        self.api.snapshot_download(self.repo_id, revision=self.commit, allow_patterns=checked)

    def _check_etag(self, file: _File) -> None:
        url = hf_hub_url(self.repo_id, file.name, revision=self.commit)
        etag = get_hf_file_metadata(url, token=self.api.token).etag
        if etag != file.sum:
            raise HubError(f"the ETag of {file.name} is {etag}, but the Hub lists it as {file.sum}")

    def _fetch(self, file: _File, advance: Advance, anew: bool) -> Path:
        tried, since = 0, clock()
        while True:
            try:
                path = self.api.hf_hub_download(
                    self.repo_id, file.name, revision=self.commit, force_download=anew, tqdm_class=bar_class(advance)
                )
                return Path(path)
            except BROKEN_CONNECTION as error:
                # huggingface_hub resumes a download that was cut, but not one whose connection was reset.
                tried += 1
                self.budget.wait(error, tried, since)


class _Cache:
    """The part of a repository that is in huggingface_hub's cache."""

    def __init__(self, repo_id: str, revision: str | None):
        self.repo_id, name = repo_id, revision or constants.DEFAULT_REVISION
        incomplete = f"the cache does not hold all of {repo_id} at {name}: pull it once with a connection"
        try:
            folder = Path(snapshot_download(repo_id, revision=revision, local_files_only=True))
        except LocalEntryNotFoundError as error:
            raise HubError(incomplete) from error
        self.folder, self.commit = folder, folder.name
        try:
            tree = get_cached_repo_tree(repo_id, revision=self.commit)
            listed = {entry.path: entry.blob_id for entry in tree}
        except CachedRepoTreeNotFoundError:
            # from_pretrained leaves no list, and only the files that it read. They are enough if they are a model.
            try:
                check_model_folder(folder)
            except ValueError as error:
                raise HubError(f"{incomplete} ({error})") from error
            listed = {path.relative_to(folder).as_posix(): None for path in folder.rglob("*") if path.is_file()}
        self.files = [
            _File(name, (folder / name).stat().st_size, _sum_in_cache(folder / name) or blob_id)
            for name, blob_id in sorted(listed.items())
        ]

    def copy(self, file: _File, target: Path, advance: Advance) -> None:
        advance(file.size)
        sums = _copy(self.folder / file.name, target, advance)
        if file.sum is None:
            raise HubError(f"the cache has no checksum for {file.name}: pull it once with a connection")
        if not sums.fits(file.sum):
            raise HubError(f"{file.name} was changed in the cache: pull it again with a connection")

    def finish(self) -> None:
        """Do nothing: the cache stays as it is."""


def _copy(path: Path, target: Path, advance: Advance) -> Sums:
    with open(path, "rb") as file, open(target, "wb") as copy:
        return sums_of(file, copy, advance)


def _sum_in_cache(path: Path) -> str | None:
    """Return the ETag of a file in the cache: it is the name of the file that the link points to."""
    name = os.path.basename(os.readlink(path)) if path.is_symlink() else ""
    return name if SUM.fullmatch(name) else None


def _forget(path: Path) -> None:
    """Remove a file from the cache, and the files that its links point to."""
    while path.is_symlink():
        target = path.parent / os.readlink(path)
        path.unlink()
        path = target
    path.unlink(missing_ok=True)
