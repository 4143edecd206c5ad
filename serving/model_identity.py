"""Hashes of the files of a saved model, by which a command that resumes recognises it."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from .model_folder import TOKENIZER_FILES

# Files of a saved model that determine its outputs.
_MODEL_FILES = ("config.json", *TOKENIZER_FILES, "tokenizer_config.json", "*.safetensors", "*.bin")


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model that determine its outputs: configuration, tokenizer and weights."""
    return [path for pattern in _MODEL_FILES for path in folder.glob(pattern)]


def digest_of_files(folder: Path, files: Iterable[Path]) -> str:
    """Return the SHA-256 of files in a folder, with their paths in it and their sizes."""
    digest = hashlib.sha256()
    for path in sorted(path for path in files if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        with open(path, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()
