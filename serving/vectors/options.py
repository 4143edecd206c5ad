"""Checks of the options of `embed`, and the hash of the paths of its texts."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import ServingError
from .vector_folder import VECTOR_DTYPES


def check_options(vector_dtype: str, chunk: int | None, overlap: int | None, max_length: int | None) -> None:
    """Raise ServingError if there is no such dtype of vectors, or if an option would have no effect beside another."""
    if vector_dtype not in VECTOR_DTYPES:
        raise ServingError(f"vector_dtype is {vector_dtype!r}; expected one of {', '.join(VECTOR_DTYPES)}")
    if chunk is None and overlap is not None:
        raise ServingError(f"overlap is {overlap}, but only chunks overlap: give their length (--chunk) as well")
    if chunk is not None and max_length is not None:
        raise ServingError(f"chunk is {chunk} and max_length {max_length}: give one, since chunks hold the whole text")


def check_output(output: str | Path, sources: Sequence[str]) -> None:
    """Raise ServingError if a source is a folder that holds the folder of vectors."""
    resolved = Path(output).resolve()
    for source in map(Path, sources):
        if source.is_dir() and source.resolve() in (resolved, *resolved.parents):
            raise ServingError(f"{output} is in the folder of the texts, {source}: name a folder next to it")


def hash_of_paths(sources: Sequence[str]) -> str:
    """Return a hash of the sources' paths, so that the settings do not have the paths themselves."""
    paths = [os.path.abspath(source) if os.path.exists(source) else source for source in sources]
    return hashlib.sha256(json.dumps(paths).encode()).hexdigest()
