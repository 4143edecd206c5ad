"""Checks of the options of `embed` and `rank`, and the hash of the paths of the texts of `embed`."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ..chunks import check_chunk_options
from ..errors import ServingError
from .vector_folder import VECTOR_DTYPES

JUDGED = 100  # texts per query that the scores of a search need


def check_options(vector_dtype: str, chunk: int | None, overlap: int | None, max_length: int | None) -> None:
    """Raise ServingError if there is no such dtype of vectors, or if an option would have no effect beside another."""
    if vector_dtype not in VECTOR_DTYPES:
        raise ServingError(f"vector_dtype is {vector_dtype!r}; expected one of {', '.join(VECTOR_DTYPES)}")
    check_chunk_options(chunk, overlap, max_length)


def check_search(
    words: bool,
    both: bool,
    word_unit: str | None,
    weight: float | None,
    tune: Path | None,
    relevant: str | None,
    qrels: Path | None,
    query: str,
) -> None:
    """Raise ServingError if an option of `rank` would have no effect beside another, or if the queries that choose the
    weight are those of the search."""
    if words and both:
        raise ServingError("--words and --both are two searches: give one")
    if word_unit is not None and not (words or both):
        raise ServingError(f"--word-unit is {word_unit}, but vectors have no words: give --words or --both as well")
    if not both and (weight is not None or tune is not None):
        raise ServingError(f"{'--weight' if tune is None else '--tune'} joins two lists: give --both as well")
    if tune is not None and weight is not None:
        raise ServingError(f"--weight is {weight:g}, and --tune chooses it: give one")
    if relevant is not None and tune is None:
        raise ServingError(f"--relevant {relevant} is a column of the file of --tune, which is missing")
    if tune is not None and relevant is None and qrels is None:
        raise ServingError(f"{tune} needs relevant texts: name their column (--relevant), or judgements (--qrels)")
    if tune is not None and os.path.exists(query) and os.path.exists(tune) and os.path.samefile(query, tune):
        raise ServingError(f"{tune} is in --tune and searched: scores on queries that chose the weight are too high")


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
