"""Digest of the code that reads and tokenizes texts. A cache is used only if the same code made it."""

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

_CODE = ("modeling_roformer.data", "modeling_roformer.tokenization", "modeling_roformer.training.pretraining.documents")
_LIBRARIES = ("rjieba", "jieba", "tokenizers", "transformers", "pandas", "pyarrow")


@cache
def code_digest() -> str:
    """Return the SHA-256 of the sources that read, tokenize and split texts, and of the versions of their libraries."""
    digest = hashlib.sha256()
    for name in _CODE:
        spec = find_spec(name)
        folders = spec.submodule_search_locations
        files = [file for folder in folders for file in Path(folder).glob("*.py")] if folders else [Path(spec.origin)]
        for file in sorted(files):
            digest.update(f"{name}/{file.name}\0".encode() + file.read_bytes() + b"\0")
    for library in _LIBRARIES:
        digest.update(f"{library} {_version(library)}\0".encode())
    return digest.hexdigest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""
