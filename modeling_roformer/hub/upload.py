"""Publish a model folder on the Hugging Face Hub, in one commit."""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.hf_api import ModelInfo, RepoFile, RepoFolder
from huggingface_hub.utils import validate_repo_id

from modeling_roformer.model_cards import card_of_folder

from .download import checksums
from .errors import HubError, hub_bars, hub_error, may_pass, usable_token
from .published_content import CARD, INDEX, TOKENIZER, VOCABULARY, WEIGHTS, published_content, with_needs

logger = logging.getLogger(__name__)
WAITS = (2, 8)  # seconds before the second and the third try
# A weight file, also a shard or a variant (model.fp16.safetensors), or the index of shards.
_WEIGHTS = re.compile(r"(.*/)?model((\.[^/]+?)?(-\d{5}-of-\d{5})?\.safetensors|\.safetensors\.index(\.[^/]+)?\.json)")
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
# Graphs that `roformer export-onnx`, optimum and sentence-transformers make of weights, with their data.
_GRAPHS = re.compile(r"(onnx|openvino)/.+|[^/]+\.onnx([._]data[^/]*)?")
_TOKENIZER_FILES = re.compile(
    r"vocab\.txt|(tokenizer|tokenizer_config|added_tokens|special_tokens_map)\.json"
    r"|chat_template\.jinja|additional_chat_templates/[^/]+\.jinja"
)
ADAPTER = "adapter_config.json"


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
    """Publish a saved model on the Hub, in one commit.

    The folder is only read. Files of the repository that would be loaded in place of what the folder has, or that were
    made of other weights, are deleted in the same commit: weights (one file instead of shards, or the reverse, of one
    variant), the other files of an earlier tokenizer, and graphs for ONNX Runtime and OpenVINO, unless the weights are
    there already. Other files of the repository stay. If the Hub is busy (429, 500, 502,
    503, 504) or the connection breaks, the push is tried again, twice. Hidden files, files of training and files that
    look like credentials are not sent, and of a path of this machine in the settings only the last part is.

    Args:
        directory: model and tokenizer as `save_pretrained`, `roformer convert` or `roformer export-onnx` wrote them. If
            neither the folder nor the repository has a README.md, a card is written. A card that does not say what the
            model needs to be loaded (this package, or the code next to it) gets a section about it.
        repo_id: `name/repository`; created if it does not exist.
        with_code: also send the code, so that `trust_remote_code=True` loads the model without this package.
        private: create a repository that only its owner can see. An existing public one is refused.
        revision: a branch, created if it does not exist; `main` if None.
        create_pr: open a pull request instead, on an existing repository; permission to read it is enough.
        commit_message: one line.
        token: if None, the one from HF_TOKEN or `hf auth login`. It never appears in errors.
        progress: show huggingface_hub's bars on stderr.
        tell: called with a sentence that names the files that are not sent, unless all of them are hidden, and with
            one that names the graphs and the tokenizer's files that were deleted.

    Returns:
        The repository's address, or the pull request's.

    Raises:
        ValueError: the folder is not a complete model, or has a link that leads out of it; nothing has been sent.
        HubError: the Hub refused, or could not be reached, or files there do not fit those of the folder. The same call
            can be repeated.

    Example:
        >>> push("my-model", "me/my-model", with_code=True, private=True)
        'https://huggingface.co/me/my-model'
    """
    directory = Path(directory)
    validate_repo_id(repo_id)  # before the weights are read
    files = published_content(directory, with_code, tell)
    token = usable_token(token)
    message = commit_message or f"Upload {directory.resolve().name}{' with code' if with_code else ''}"
    upload = _Upload(HfApi(token=token), directory, files, repo_id, with_code, private, revision, create_pr, message)
    for number, wait in enumerate((*WAITS, None)):
        try:
            with hub_bars(progress):
                address = upload.send()
            break
        except Exception as error:  # of huggingface_hub, of its HTTP library, and of the system; all become a HubError
            if wait is None or not may_pass(error):
                # The commit of an earlier try may have been made without a response.
                sure = "the push failed, and can be repeated" if number else "nothing was published"
                raise hub_error(error, f"{repo_id}: {sure}", token, "write") from None
            sleep(wait)
    if upload.deleted:
        names = ", ".join(sorted(upload.deleted))
        tell(f"deleted there, since they belong to other weights or another tokenizer: {names}")
    return address


@dataclass
class _Upload:
    """One push: what it sends where, and what its earlier tries have found and done."""

    api: HfApi
    directory: Path
    files: dict[str, Path | bytes]
    repo_id: str
    with_code: bool
    private: bool
    revision: str | None
    create_pr: bool
    message: str
    open_before: set[int] | None = None  # numbers of the pull requests that were open before the first try
    deleted: set[str] = field(default_factory=set)  # files of the repository

    def send(self) -> str:
        """Make the commit or open the pull request; return the address. If an earlier try did so, nothing changes."""
        if self.create_pr and (url := self._opened_by_an_earlier_try()):
            return url
        repository = self._make_repository()
        parent = self.api.model_info(repository, revision=self.revision)
        commit = self.api.create_commit(
            repository,
            self._changes(repository, parent),
            commit_message=self.message,
            revision=self.revision,
            create_pr=self.create_pr,
            parent_commit=parent.sha,
        )
        if not self.create_pr:
            return f"{commit.repo_url}/tree/{self.revision}" if self.revision else str(commit.repo_url)
        if commit.pr_url is None:  # huggingface_hub sends no commit that changes nothing
            raise HubError(f"{repository} already has all of these files, so no pull request was opened")
        return commit.pr_url

    def _opened_by_an_earlier_try(self) -> str | None:
        """Return the address of the pull request that an earlier try opened, if its response was lost."""
        opened = {pr.num: pr for pr in self.api.get_repo_discussions(self.repo_id, discussion_type="pull_request")}
        if self.open_before is None:
            self.open_before = set(opened)
        return next(
            (pr.url for number, pr in opened.items() if number not in self.open_before and pr.title == self.message),
            None,
        )

    def _make_repository(self) -> str:
        """Return the repository's name with its owner, who may be left out. Make it, and the branch, unless they are
        there or a pull request is opened."""
        repository = self.repo_id
        if not self.create_pr:
            repository = self.api.create_repo(self.repo_id, private=self.private or None, exist_ok=True).repo_id
        if self.private and not self.api.model_info(repository).private:
            raise HubError(f"{repository} is public on the Hub: make it private there, or choose another name")
        if self.revision and not self.create_pr:
            self.api.create_branch(repository, branch=self.revision, exist_ok=True)
        return repository

    def _changes(self, repository: str, parent: ModelInfo) -> list[CommitOperationAdd | CommitOperationDelete]:
        """Return the files to add and to delete, beside or in place of those of the commit `parent`."""
        there = [file.rfilename for file in parent.siblings or ()]
        _refuse_mixture(there, self.files, self.directory)
        content = self.files | {CARD: self._card(repository, parent, CARD in there)}
        outdated = _outdated_tokenizer(there, content)
        graphs = [name for name in there if _GRAPHS.fullmatch(name) and name not in content]
        if graphs and _has_new_weights(
            self.files, self.api.list_repo_tree(repository, recursive=True, revision=parent.sha)
        ):
            outdated += graphs
        self.deleted.update(outdated)
        added = [CommitOperationAdd(name, data) for name, data in sorted(content.items())]
        return [*added, *map(CommitOperationDelete, _replaced(there, content) + outdated)]

    def _card(self, repository: str, parent: ModelInfo, is_there: bool) -> bytes:
        """Return the card of the folder, or else of the repository, or a new one, with what the model needs."""
        path = self.directory / CARD
        if not path.exists() and is_there:
            path = Path(self.api.hf_hub_download(repository, CARD, revision=parent.sha))
        card = path.read_text(encoding="utf-8") if path.exists() else card_of_folder(self.directory)
        return with_needs(card, self.directory, self.with_code).encode("utf-8")


def _refuse_mixture(there: Collection[str], pushed: Collection[str], directory: Path) -> None:
    """Raise HubError if files that stay in the repository would not fit those that are pushed."""
    dense = [name for name in there if re.fullmatch(r"\d+_Dense/model\.safetensors", name)]
    if dense and "modules.json" not in pushed:
        raise HubError(
            f"{dense[0]} there belongs to other weights, and {directory} has no modules.json: delete both there, or "
            "push the folder that `roformer convert` writes of RoFormer-Sim"
        )
    if ADAPTER in there and ADAPTER not in pushed:
        raise HubError(
            f"with {ADAPTER} there, transformers loads the adapter and its base model, not the weights of {directory}: "
            "push to another repository, or delete the adapter there"
        )
    if {WEIGHTS, INDEX}.isdisjoint(pushed) and not {WEIGHTS, INDEX}.isdisjoint(there):
        raise HubError(
            f"{directory} has a graph alone, and its config.json would replace that of the weights there: push it to "
            "another repository, or push a folder with the weights and onnx/"
        )


def _outdated_tokenizer(there: Iterable[str], pushed: Collection[str]) -> list[str]:
    """Return the files of an earlier tokenizer that are not pushed again; loading would mix them with the new one."""
    if {VOCABULARY, TOKENIZER}.isdisjoint(pushed):
        return []
    return [name for name in there if _TOKENIZER_FILES.fullmatch(name) and name not in pushed]


def _has_new_weights(files: Mapping[str, Path | bytes], there: Iterable[RepoFile | RepoFolder]) -> bool:
    """Return whether the weights in `files` differ from those there; of a folder without weights, the graphs."""
    ids = {file.path: file.blob_id for file in there if isinstance(file, RepoFile)}
    paths = {name: path for name, path in files.items() if isinstance(path, Path)}
    weights = [name for name in paths if name == WEIGHTS or _SHARD.fullmatch(name)]
    known = [name for name in weights or filter(_GRAPHS.fullmatch, paths) if name in ids]
    return not known or any(ids[name] not in checksums(paths[name]) for name in known)


def _replaced(there: Iterable[str], pushed: Collection[str]) -> list[str]:
    """Return the weight files of the same folder and variant that those in `pushed` replace.

    If there are a single file and shards, transformers loads the single file. An index without shards replaces nothing:
    transformers uses the same name for the index of an adapter's shards.
    """

    def variant(name: str) -> tuple | None:
        return (match := _WEIGHTS.fullmatch(name)) and (match[1], match[3] or match[5])

    variants = {variant(name) for name in pushed if not name.endswith(".json")} - {None}
    return sorted(name for name in there if name not in pushed and variant(name) in variants)
