"""Publish the files of a model and its card in one commit."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import EntryNotFoundError

from ..model_cards import card_of_folder
from ..output.console import byte_progress
from .client import Advance, hub_bars, usable_token, uses_xet
from .commit import commit_once, propose_once
from .errors import LOG_IN, HubError, Unanswered, hub_error, shown
from .published_content import CARD, with_needs
from .retries import retrying, sending

# Larger files are sent one after the other, by the thread that pushes, so that Ctrl-C stops at once.
LARGE = 1 << 20


def publish(
    directory: Path,
    files: dict[str, Path | bytes],
    changed: Callable[[], list[str]],
    repo_id: str,
    with_code: bool,
    private: bool,
    revision: str | None,
    create_pr: bool,
    commit_message: str | None,
    token: str | None,
    progress: bool,
) -> str:
    """Send files and the card of `directory`; return the address of the repository or of the pull request.

    Args:
        files: by their path in the repository.
        changed: returns the names of the files that were changed since they were checked.

    The other arguments and the errors are those of `push`.
    """
    token = usable_token(token)
    if token is None:
        raise ValueError(f"there is no token for the Hub: {LOG_IN.format(verb='write')}")
    message = commit_message or f"Upload {directory.resolve().name}{' with code' if with_code else ''}"
    with _sending_bar(progress, sum(_size(content) for content in files.values())) as advance, retrying() as budget:
        try:
            api = HfApi(token=token)
            if create_pr:
                api.repo_info(repo_id, revision=revision)
                address = None
            else:
                address = api.create_repo(repo_id, private=private or None, exist_ok=True)
                repo_id = address.repo_id
            if private and not api.model_info(repo_id).private:
                raise HubError(f"{repo_id} is public on the Hub: make it private there, or choose another name")
            if revision and not create_pr:
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            if card := _card(api, repo_id, revision, directory, with_code):
                files[CARD] = card.encode("utf-8")
            additions = [
                Addition(path_in_repo=name, path_or_fileobj=files[name], advance=advance) for name in sorted(files)
            ]
            _upload(api, repo_id, revision, create_pr, additions)
            if names := changed():
                raise HubError(f"{directory / names[0]} was changed while it was sent: push again")
            if create_pr:
                return propose_once(api, repo_id, additions, message, revision, budget)
            commit_once(api, repo_id, additions, message, revision, budget)
            return f"{address}/tree/{revision}" if revision else str(address)
        except Exception as error:
            outcome = "the commit got no response" if isinstance(error, Unanswered) else "nothing was published"
            raise hub_error(error, repo_id, "write to", outcome, token) from shown(error, token)


@dataclass
class Addition(CommitOperationAdd):
    """A file to send, which can be sent again from any position, and reports how much of it was sent."""

    advance: Advance = field(default=lambda count: None, repr=False)

    @contextmanager
    def as_file(self, with_tqdm: bool = False) -> Iterator[BinaryIO]:
        with super().as_file() as content:
            if not with_tqdm:  # huggingface_hub reads it, but does not send it
                yield content
                return
            with Counted(content, self.advance) as file, sending(file):
                yield file


class Counted(io.BufferedReader):
    """A file that reports how many bytes were read from it for the first time."""

    def __init__(self, content: Any, advance: Advance):
        super().__init__(content)
        self.furthest, self.advance = 0, advance

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if (position := self.tell()) > self.furthest:
            self.advance(position - self.furthest)
            self.furthest = position
        return data


def _upload(api: HfApi, repo_id: str, revision: str | None, create_pr: bool, additions: list[Addition]) -> None:
    """Send large files. The Hub keeps them until a commit names them, and gets only those that it lacks."""
    large = [addition for addition in additions if addition.upload_info.size > LARGE]
    small = [addition for addition in additions if addition.upload_info.size <= LARGE]
    for together in [[addition] for addition in large] + [small]:
        api.preupload_lfs_files(repo_id, together, revision=revision, create_pr=create_pr, free_memory=False)


def _card(api: HfApi, repo_id: str, revision: str | None, directory: Path, with_code: bool) -> str | None:
    """Return the card to send, or None if the folder's own, or the repository's, is right as it is."""
    own = directory / CARD
    if own.exists():
        card = own.read_text(encoding="utf-8")
    else:
        try:
            card = Path(api.hf_hub_download(repo_id, CARD, revision=revision)).read_text(encoding="utf-8")
        except EntryNotFoundError:
            card = None
        if card is None:  # outside the handler: an error of the folder is not one of the Hub
            return with_needs(card_of_folder(directory), directory, with_code)
    complete = with_needs(card, directory, with_code)
    return None if complete == card else complete


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else os.path.getsize(content)


@contextmanager
def _sending_bar(shown: bool, total: int) -> Iterator[Advance]:
    if uses_xet():  # it sends without Addition, and shows its own bar
        with hub_bars(shown and sys.stderr.isatty()):
            yield lambda count: None
        return
    with hub_bars(False), byte_progress(shown) as progress:
        task = progress.add_task("sending", total=total)
        yield lambda count: progress.advance(task, count)
