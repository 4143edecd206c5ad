"""Checks of a saved model's folder that need no torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..conversion.folder.legacy_folder import missing
from ..files.reading import read_json
from ..output.console import sentence_of
from .errors import ServingError

TOKENIZER_FILES = ("vocab.txt", "tokenizer.json")


def read_model_folder(folder: Path) -> dict:
    """Return the config.json of a saved model.

    Raises:
        ServingError: there is no such folder, or it has no config.json or no tokenizer.
    """
    if not folder.exists():
        raise ServingError(missing(folder, "the folder of a saved model"))
    if not folder.is_dir():
        raise ServingError(f"{folder} is not a folder: name the folder of a saved model")
    config = read_json(folder / "config.json", default={})
    if not config:
        advice = "convert a checkpoint with `roformer convert`, or fetch a model with `roformer pull`"
        if (folder / "modules.json").is_file():  # before version 2
            advice = "sentence-transformers saved it in a subfolder: load it with SentenceTransformer and save it again"
        raise ServingError(f"{folder} has no config.json, so it is not a saved model: {advice}")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ServingError(
            f"{folder} has no tokenizer ({' or '.join(TOKENIZER_FILES)}): save the model's tokenizer there"
        )
    return config


@contextmanager
def named_when_unreadable(folder: Path) -> Iterator[None]:
    """Turn any error in the block into a ServingError that names the folder: not all loaders' errors name a file."""
    try:
        yield
    except Exception as error:  # of any type, for example for damaged weights
        raise ServingError(f"{folder} cannot be loaded: {sentence_of(error)}") from None
