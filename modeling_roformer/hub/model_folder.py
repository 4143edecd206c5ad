"""Is a folder a complete model, and which of its files are to be published?"""

import json
from fnmatch import fnmatch
from pathlib import Path

from safetensors import SafetensorError, safe_open

from ..model_cards import check_metadata

# Left behind: hidden files, caches, and what training leaves beside a model.
IGNORED = (".*", "__pycache__", "_*", "checkpoint-*", "*.pyc")
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"


def check_model_folder(directory: str | Path) -> dict[str, Path]:
    """The files of a folder that are to be published, by their path in the repository.

    Raises:
        ValueError: names what is missing or broken: config.json, weights (each shard, and each tensor that the index
            names), vocabulary, or the metadata of the card.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a folder")
    config = read_json(directory / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise ValueError(f"{directory / 'config.json'} names no model_type, so nobody could load this model")
    _check_weights(directory)
    if not (directory / "vocab.txt").is_file() and not (directory / "tokenizer.json").is_file():
        raise ValueError(f"{directory} has no tokenizer (vocab.txt or tokenizer.json): save it there first")
    for name in ("tokenizer_config.json", "tokenizer.json"):
        if (directory / name).exists():
            read_json(directory / name)
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
        _check_shards(directory, read_json(index).get("weight_map"))


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
            check_metadata(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"the Hub would refuse {path}: {_line(error)}") from error


def read_json(path: Path) -> dict:
    """A JSON object from a file of a model folder; a ValueError that names the file where it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path.parent} has no {path.name}, so it is not a saved model") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object")
    return content


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
