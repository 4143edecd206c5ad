"""Digest of the code that reads and tokenizes texts. A cache is used only if the same code made it."""

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

# Package -> how the names of its files end.
_CODE = {
    "modeling_roformer.data": ".py",
    "modeling_roformer.tokenization": ".py",
    "modeling_roformer.training.pretraining": "documents.py",
}
_LIBRARIES = ("rjieba", "jieba", "tokenizers", "transformers", "pandas", "pyarrow")


@cache
def code_digest() -> str:
    """Return the SHA-256 of the sources that read, tokenize and split texts, and of the versions of their libraries."""
    digest = hashlib.sha256()
    for package, ending in _CODE.items():
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(ending):
                digest.update(f"{package}/{file.name}\0".encode() + file.read_bytes() + b"\0")
    for library in _LIBRARIES:
        digest.update(f"{library} {_version(library)}\0".encode())
    return digest.hexdigest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""
