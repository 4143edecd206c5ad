"""Publish a model folder on the Hugging Face Hub, in one commit, after checking that it is complete."""

import json
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, ModelCard, get_token
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError, safe_open

from .model_cards import card_for
from .remote_code import files_with_code, missing_code
from .tokenization.characters import is_cjk
from .tokenization.vocabulary import has_words, read_vocabulary

# Left behind: hidden files, caches, and what training leaves beside a model.
IGNORED = (".*", "__pycache__", "_*", "checkpoint-*", "*.pyc")
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
LOG_IN = "log in with `hf auth login`, or put a token that may write into HF_TOKEN"


class HubError(OSError):
    """The Hub did not do what was asked, in one sentence."""


def push(
    directory: str | Path,
    repo_id: str,
    *,
    with_code: bool = False,
    private: bool = False,
    revision: str | None = None,
    commit_message: str | None = None,
    token: str | None = None,
) -> str:
    """Publishes a saved model on the Hub, in one commit.

    The folder is only read. Files that the repository has and the folder lacks stay there.

    Args:
        directory: model and tokenizer as `save_pretrained` or `roformer convert` wrote them. Hidden files and what
            training leaves beside a model (`checkpoint-*`) are not sent. Where neither it nor the repository has a
            README.md, a card is written from what the folder says of itself.
        repo_id: `name/repository`; made if it does not exist.
        with_code: send the code too, so that `trust_remote_code=True` loads the model without this package.
        private: make a repository that only its owner can see. An existing public one is refused.
        revision: a branch, made if it does not exist; `main` where None.
        commit_message: one line.
        token: where None, that of HF_TOKEN or of `hf auth login`.

    Returns:
        The repository's address.

    Raises:
        ValueError: where the folder is not a complete model; nothing has been sent then.
        HubError: where the Hub refused, or could not be reached; says whether anything can have been published.

    Example:
        >>> push("my-model", "me/my-model", with_code=True, private=True)
        'https://huggingface.co/me/my-model'
    """
    directory = Path(directory)
    validate_repo_id(repo_id)
    files: dict[str, Path | bytes] = {**check_model_folder(directory)}
    if with_code:
        files |= files_with_code(directory)
    elif absent := missing_code(directory):
        raise ValueError(
            f"auto_map in {directory} names {', '.join(absent)}, which is not there: push it with its code"
        )
    new_card = None if "README.md" in files else _card(directory)
    token = token or get_token()
    if not token:
        raise ValueError(f"there is no token for the Hub: {LOG_IN}")
    message = commit_message or f"Upload {directory.resolve().name}{' with code' if with_code else ''}"
    operations = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=files[name]) for name in sorted(files)]
    try:
        return _commit(HfApi(token=token), repo_id, operations, new_card, private, revision, message)
    except HubError:
        raise
    except Exception as error:
        raise HubError(_sentence(error, repo_id).replace(token, "***")) from error


def _commit(
    api: HfApi,
    repo_id: str,
    operations: list[CommitOperationAdd],
    new_card: str | None,
    private: bool,
    revision: str | None,
    message: str,
) -> str:
    url = api.create_repo(repo_id, private=private or None, exist_ok=True)
    repo_id = url.repo_id
    if private and not api.model_info(repo_id).private:
        raise HubError(f"{repo_id} exists on the Hub and is public: make it private there, or choose another name")
    if revision:
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    if new_card and not api.file_exists(repo_id, "README.md", revision=revision):
        operations.append(CommitOperationAdd(path_in_repo="README.md", path_or_fileobj=new_card.encode("utf-8")))
    api.create_commit(repo_id, operations, commit_message=message, revision=revision)
    return f"{url}/tree/{revision}" if revision else str(url)


def check_model_folder(directory: str | Path) -> dict[str, Path]:
    """The files of a folder that are to be published, by their path in the repository.

    Raises:
        ValueError: names what is missing or broken: config.json, weights (each shard, and each tensor that the index
            names), vocabulary, or the metadata of the card.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a folder")
    config = _read_json(directory / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise ValueError(f"{directory / 'config.json'} names no model_type, so nobody could load this model")
    _check_weights(directory)
    if not (directory / "vocab.txt").is_file() and not (directory / "tokenizer.json").is_file():
        raise ValueError(f"{directory} has no tokenizer (vocab.txt or tokenizer.json): save it there first")
    for name in ("tokenizer_config.json", "tokenizer.json"):
        if (directory / name).exists():
            _read_json(directory / name)
    _check_card(directory / "README.md")
    paths = {path.relative_to(directory): path for path in sorted(directory.rglob("*")) if path.is_file()}
    return {
        relative.as_posix(): path
        for relative, path in paths.items()
        if not any(fnmatch(part, pattern) for part in relative.parts for pattern in IGNORED)
    }


def _check_weights(directory: Path) -> None:
    whole, index = directory / WEIGHTS, directory / WEIGHTS_INDEX
    if not whole.exists() and not index.exists():
        raise ValueError(f"{directory} has no weights ({WEIGHTS} or {WEIGHTS_INDEX}): save the model there first")
    if whole.exists():
        _tensor_names(whole)
    if index.exists():
        _check_shards(directory, _read_json(index).get("weight_map"))


def _check_shards(directory: Path, weight_map: object) -> None:
    """Whether each shard is there, and holds the tensors that the index says are in it."""
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(f, str) for f in weight_map.values()):
        raise ValueError(f"{directory / WEIGHTS_INDEX} has no weight_map, so nobody could load these weights")
    for shard in sorted(set(weight_map.values())):
        if not (directory / shard).is_file():
            raise ValueError(f"{directory} lacks {shard}, which {WEIGHTS_INDEX} names")
        absent = {name for name, file in weight_map.items() if file == shard} - _tensor_names(directory / shard)
        if absent:
            raise ValueError(f"{directory / shard} lacks {min(absent)}, which {WEIGHTS_INDEX} says is in it")


def _tensor_names(path: Path) -> set[str]:
    try:
        with safe_open(path, "np") as weights:
            return set(weights.keys())
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a whole safetensors file: {_line(error)}") from error


def _check_card(path: Path) -> None:
    if path.exists():
        try:
            ModelCard(path.read_text(encoding="utf-8"))
        except Exception as error:
            raise ValueError(f"the metadata at the head of {path} cannot be read: {_line(error)}") from error


def _card(directory: Path) -> str:
    """A card made from what the folder says of itself."""
    parameters, dtypes = 0, set()
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "np") as weights:
            for name in weights.keys():  # noqa: SIM118, a safetensors file is no dict
                tensor = weights.get_slice(name)
                size = 1
                for length in tensor.get_shape():
                    size *= length
                parameters += size
                dtypes.add(tensor.get_dtype())
    vocabulary = _vocabulary(directory)
    return card_for(
        directory.resolve().name,
        _read_json(directory / "config.json"),
        has_words(vocabulary),
        parameters=parameters,
        dtype=", ".join(sorted(dtypes)).replace("BF", "bfloat").replace("F", "float"),
        language="zh" if any(is_cjk(entry) for entry in vocabulary if len(entry) == 1) else None,
    )


def _vocabulary(directory: Path) -> Iterable[str]:
    if (directory / "vocab.txt").exists():
        return read_vocabulary(directory / "vocab.txt")
    model = _read_json(directory / "tokenizer.json").get("model")
    return model["vocab"] if isinstance(model, dict) and isinstance(model.get("vocab"), dict) else {}


def _read_json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path.parent} has no {path.name}, so it is not a saved model") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object")
    return content


def _sentence(error: BaseException, repo_id: str) -> str:
    """What went wrong, for whoever pushed: the answer of the Hub is somewhere in the chain of causes."""
    chain = [error]
    while cause := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(cause)
    response = next((link.response for link in chain if isinstance(link, HfHubHTTPError)), None)
    status = 0 if response is None else response.status_code
    if status:
        reason = _refusal(response, repo_id)
    elif any(type(link).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore") for link in chain):
        reason = f"the Hub could not be reached, or the connection broke ({_line(error)})"
    else:
        reason = _line(error)
    if (not status or status >= 500) and any("/commit/" in _address(link) for link in chain):
        return f"{reason}; it had the commit already, so look at {repo_id} there before pushing again"
    return f"nothing was published: {reason}"


def _refusal(response, repo_id: str) -> str:
    """The meaning of an answer that is not what was asked for."""
    status = response.status_code
    said = response.headers.get("X-Error-Message") or f"HTTP {status}"
    changed = f"{repo_id} was changed by somebody else at the same time: push again"
    reasons = {
        400: f"the Hub found something wrong with the files ({_server_message(response) or said})",
        401: f"the Hub does not accept the token ({said}): {LOG_IN}",
        403: f"the token may not write to {repo_id} ({said}): {LOG_IN}",
        404: f"the Hub does not know {repo_id} ({said}), or the token may not see it",
        409: changed,
        412: changed,
        413: f"the files are too large for the Hub ({said})",
        429: "the Hub takes no more requests for now (HTTP 429): push again later",
    }
    return reasons.get(status) or f"the Hub answered {said}"


def _address(error: BaseException) -> str:
    try:
        return str(error.request.url)
    except (AttributeError, RuntimeError):  # no request belongs to it
        return ""


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _server_message(response) -> str:
    try:
        return str(response.json().get("error", ""))
    except Exception:
        return ""
