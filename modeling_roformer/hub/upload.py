"""Publish a model folder on the Hugging Face Hub, after a check that it is complete."""

import logging
from collections.abc import Callable
from pathlib import Path

from .published_content import published_content

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
    """Publish a saved model on the Hub, in one commit.

    The folder is only read. Weights in the repository that those of the folder replace (one file instead of shards, or
    the reverse, of one variant) are deleted; other files of the repository stay. Temporary failures (429, 500, 502,
    503, 504, cut connections) are retried, with a warning each, at most five tries and 90 seconds, or two tries if no
    connection is made at all. Large files that arrived are not sent again, not even by the next push.

    Args:
        directory: model and tokenizer as `save_pretrained`, `roformer convert` or `roformer export-onnx` wrote them.
            Hidden files, files of training (`checkpoint-*`, optimizer.pt, `runs/` …), names that begin with "_", and
            files that look like credentials (`id_rsa`, `*.pem`, `token` …) are not sent. A file that the card shows or
            links to is sent even from a folder such as `runs/`, unless it is hidden or a credential. Links are followed
            within the folder, and from a snapshot in huggingface_hub's cache to its blobs. Of a path of this machine in
            the settings (`_name_or_path` in config.json …) only the last part is sent. If neither the folder nor the
            repository has a README.md, a card is written from the folder's files. A card that does not say what the
            model needs to be loaded (this package, or the code next to it) gets a section about it.
        repo_id: `name/repository`; created if it does not exist.
        with_code: also send the code, so that `trust_remote_code=True` loads the model without this package.
        private: create a repository that only its owner can see. An existing public one is refused.
        revision: a branch, created if it does not exist; `main` if None.
        create_pr: open a pull request instead, on an existing repository; permission to read it is enough.
        commit_message: one line.
        token: if None, the one from HF_TOKEN or `hf auth login`. It never appears in errors.
        progress: show a bar on stderr.
        tell: called with a sentence that names the files that are not sent, unless all of them are hidden.

    Returns:
        The repository's address, or the pull request's.

    Raises:
        ValueError: the folder is not a complete model, or has a link that leads out of it; nothing has been sent.
        HubError: the Hub refused, or could not be reached; says whether anything may have been published.

    Example:
        >>> push("my-model", "me/my-model", with_code=True, private=True)
        'https://huggingface.co/me/my-model'
    """
    directory = Path(directory)
    files, changed = published_content(directory, with_code, tell)
    from huggingface_hub.utils import validate_repo_id  # a bad folder need not wait for it

    from .publication import publish

    validate_repo_id(repo_id)
    return publish(
        directory, files, changed, repo_id, with_code, private, revision, create_pr, commit_message, token, progress
    )  # fmt: skip
