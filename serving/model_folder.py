"""Checks of a saved model's folder that need no torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modeling_roformer.files.model_folder import why_no_model
from modeling_roformer.files.reading import read_json
from modeling_roformer.output.console import sentence_of

from .errors import ServingError

TOKENIZER_FILES = ("vocab.txt", "tokenizer.json")


def read_model_folder(folder: Path) -> dict:
    """Return the config.json of a saved model.

    Raises:
        ServingError: there is no such folder, or it has no config.json or no tokenizer.
    """
    if reason := why_no_model(folder):
        raise ServingError(reason)
    config = read_json(folder / "config.json")
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
