"""Publish a model folder on the Hugging Face Hub, in one commit, after checking that it is complete."""

import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.errors import EntryNotFoundError
from huggingface_hub.utils import validate_repo_id

from ..model_cards import card_of_folder
from .bars import hub_bars
from .card import with_needs
from .commit import commit_once, propose_once
from .errors import LOG_IN, HubError, Unanswered, hub_error, shown
from .model_folder import check_model_folder
from .remote_code import files_with_code, missing_code
from .retries import patience, sending
from .token import usable_token

CARD = "README.md"
# Larger files are sent one after the other, by the thread that pushes, so that Ctrl-C ends it at once.
LARGE = 1 << 20

logger = logging.getLogger(__name__)


def push(
    directory: str | Path,
    repo_id: str,
    *,
    with_code: bool = False,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    token: str | None = None,
    progress: bool = False,
    tell: Callable[[str], object] = logger.warning,
) -> str:
    """Publishes a saved model on the Hub, in one commit.

    The folder is only read. Files that the repository has and the folder lacks stay there. What the Hub cannot do for the
    moment (429, 500, 502, 503, 504, cut connections) is tried again, five times and for 90 seconds at most; large files
    that have arrived are not sent again, by the next push neither.

    Args:
        directory: model and tokenizer as `save_pretrained` or `roformer convert` wrote them. Not sent are hidden files,
            what training leaves beside a model (`checkpoint-*`, optimizer.pt, `runs/` …), names that begin with "_", and
            what looks like a credential (`id_rsa`, `*.pem`, `token` …). A file that the card shows or links to is sent
            from a folder such as `runs/` too; a hidden one, or a credential, is not. Links are followed within the
            folder, and from a snapshot in huggingface_hub's cache to its blobs. Where neither it nor the repository has a
            README.md, a card is written from what the folder says of itself; a card that does not say what the model
            needs to be loaded (this package, or the code beside it) gets a section about it.
        repo_id: `name/repository`; made if it does not exist.
        with_code: send the code too, so that `trust_remote_code=True` loads the model without this package.
        private: make a repository that only its owner can see. An existing public one is refused.
        revision: a branch, made if it does not exist; `main` where None.
        create_pr: open a pull request instead, on a repository that exists, for which reading it is enough.
        commit_message: one line.
        token: where None, that of HF_TOKEN or of `hf auth login`. It appears in no error.
        progress: show a bar on stderr.
        tell: is called with a sentence that names what is not sent, where there is more than hidden files.

    Returns:
        The repository's address, or the pull request's.

    Raises:
        ValueError: where the folder is not a complete model, or holds a link that leads out of it; nothing has been
            sent then.
        HubError: where the Hub refused, or could not be reached; says whether anything can have been published.

    Example:
        >>> push("my-model", "me/my-model", with_code=True, private=True)
        'https://huggingface.co/me/my-model'
    """
    directory = Path(directory)
    validate_repo_id(repo_id)
    published = check_model_folder(directory)
    files: dict[str, Path | bytes] = {**published.files}
    if with_code:
        files |= files_with_code(directory)
    elif absent := missing_code(directory, files):
        raise ValueError(
            f"auto_map or custom_pipelines in {directory} name {', '.join(absent)}, which is not there or not published: "
            "push it with its code"
        )
    token = usable_token(token)
    if token is None:
        raise ValueError(f"there is no token for the Hub: {LOG_IN.format(verb='write')}")
    if note := published.note():
        tell(note)
    message = commit_message or f"Upload {directory.resolve().name}{' with code' if with_code else ''}"
    with _sending_bar(progress, sum(_size(content) for content in files.values())) as bar, patience(bar.tell) as kept:
        try:
            api = HfApi(token=token)
            if create_pr:
                api.repo_info(repo_id, revision=revision)
                address = None
            else:
                address = api.create_repo(repo_id, private=private or None, exist_ok=True)
                repo_id = address.repo_id
            if private and not api.model_info(repo_id).private:
                raise HubError(
                    f"{repo_id} exists on the Hub and is public: make it private there, or choose another name"
                )
            if revision and not create_pr:
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            if card := _card(api, repo_id, revision, directory, with_code):
                files[CARD] = card.encode("utf-8")
            operations = [Addition(path_in_repo=name, path_or_fileobj=files[name], bar=bar) for name in sorted(files)]
            _upload(api, repo_id, revision, create_pr, operations)
            if create_pr:
                return propose_once(api, repo_id, operations, message, revision, kept)
            commit_once(api, repo_id, operations, message, revision, kept)
            return f"{address}/tree/{revision}" if revision else str(address)
        except Unanswered as error:
            raise hub_error(error, repo_id, "write to", "no answer came to the commit", token) from shown(error, token)
        except Exception as error:
            raise hub_error(error, repo_id, "write to", "nothing was published", token) from shown(error, token)


@dataclass
class Bar:
    """Where progress goes; by default nowhere."""

    advance: Callable[[int], object] = lambda count: None
    tell: Callable[[str], object] = lambda sentence: None


@dataclass
class Addition(CommitOperationAdd):
    """A file to be sent, which can be sent again from any place in it, and says how much of it was."""

    bar: Bar = field(default_factory=Bar, repr=False)

    @contextmanager
    def as_file(self, with_tqdm: bool = False) -> Iterator[io.BufferedIOBase]:
        with super().as_file() as content:
            if not with_tqdm:  # it is read, but not sent
                yield content
                return
            with Counted(content, self.bar.advance) as file, sending(file):
                yield file


class Counted(io.BufferedReader):
    """A file that tells how many bytes were read from it, beyond those read before."""

    def __init__(self, content: io.BufferedIOBase, advance: Callable[[int], object]):
        super().__init__(content)
        self.furthest, self.advance = 0, advance

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if (position := self.tell()) > self.furthest:
            self.advance(position - self.furthest)
            self.furthest = position
        return data


def _upload(api: HfApi, repo_id: str, revision: str | None, create_pr: bool, operations: list[Addition]) -> None:
    """Sends large files; the Hub keeps them until a commit names them, and asks only for those that it lacks."""
    large = [operation for operation in operations if operation.upload_info.size > LARGE]
    small = [operation for operation in operations if operation.upload_info.size <= LARGE]
    for additions in [[operation] for operation in large] + [small]:
        api.preupload_lfs_files(repo_id, additions, revision=revision, create_pr=create_pr, free_memory=False)


def _card(api: HfApi, repo_id: str, revision: str | None, directory: Path, with_code: bool) -> str | None:
    """The card to be sent, or None where the folder's own, or the repository's, is right as it is."""
    own = directory / CARD
    if own.exists():
        card = own.read_text(encoding="utf-8")
    else:
        try:
            card = Path(api.hf_hub_download(repo_id, CARD, revision=revision)).read_text(encoding="utf-8")
        except EntryNotFoundError:
            return with_needs(card_of_folder(directory), directory, with_code)
    complete = with_needs(card, directory, with_code)
    return None if complete == card else complete


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else os.path.getsize(content)


@contextmanager
def _sending_bar(shown: bool, total: int) -> Iterator[Bar]:
    if find_spec("hf_xet") and not constants.HF_HUB_DISABLE_XET:  # sends by itself, and shows its own bar
        with hub_bars(shown and sys.stderr.isatty()):
            yield Bar()
        return
    from ..output.progress_bar import byte_progress

    with hub_bars(False), byte_progress(shown) as progress:
        task = progress.add_task("sending", total=total)
        yield Bar(
            lambda count: progress.advance(task, count),
            lambda sentence: progress.update(task, description=sentence),
        )
