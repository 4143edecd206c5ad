"""Options of `embed`: their checks, and the settings that they give a folder of vectors."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from modeling_roformer.data.texts import source_names

from ..errors import ServingError
from ..pooling import length_of_older_versions
from .encoder import MAX_LENGTH, model_identity
from .vector_folder import VECTOR_DTYPES, VectorFolder


@dataclass(frozen=True)
class EmbedOptions:
    """Options of `embed`, by the names of its arguments. `sources` are its `texts`."""

    sources: tuple[str, ...]
    field: str
    id_field: str | None
    sample_by: str
    max_length: int | None
    chunk: int | None
    overlap: int | None
    dtype: str
    vector_dtype: str
    keep_text: bool
    shard_size: int
    batch_tokens: int
    device: str | None
    ray: str | None
    workers: int | None

    def check(self) -> None:
        """Raise ServingError if an option has no such value, or does not go with another."""
        if self.vector_dtype not in VECTOR_DTYPES:
            raise ServingError(f"vector_dtype is {self.vector_dtype!r}; expected one of {', '.join(VECTOR_DTYPES)}")
        if self.chunk is None and self.overlap is not None:
            raise ServingError(
                f"overlap is {self.overlap}, but only chunks overlap: give their length (--chunk) as well"
            )
        if self.chunk is not None and self.max_length is not None:
            raise ServingError(
                f"chunk is {self.chunk} and max_length {self.max_length}: give one, since chunks hold the whole text"
            )

    def check_sources(self, output: str | Path) -> None:
        """Raise ServingError if a source is a folder that holds the folder of vectors."""
        resolved = Path(output).resolve()
        for source in map(Path, self.sources):
            if source.is_dir() and source.resolve() in (resolved, *resolved.parents):
                raise ServingError(f"{output} is in the folder of the texts, {source}: name a folder next to it")

    def settings(self, model: Path, stored: dict) -> dict:
        """Return the settings on which the vectors depend.

        Args:
            model: folder of the model.
            stored: the settings in the folder of vectors; empty if it is new.
        """
        settings = {
            "model": model_identity(model),
            "texts": source_names(self.sources),
            "field": self.field,
            "id_field": self.id_field,
            "max_length": self.max_length,
            "longest": MAX_LENGTH,
            "dtype": self.dtype,
            "vector_dtype": self.vector_dtype,
            "keep_text": self.keep_text,
            "shard_size": self.shard_size,
            "chunk": self.chunk,
            # None in folders of older versions.
            "sample_by": None if self.sample_by == "line" else self.sample_by,
            "overlap": self.overlap or None,
        }
        if not stored or "stated_length" in stored:  # earlier versions did not compare it
            has_default_length = self.max_length is None and self.chunk is None
            settings["stated_length"] = length_of_older_versions(model) if has_default_length else None
        return settings

    def hash_of_paths(self) -> str:
        """Return a hash of where the texts are, so that the settings do not have the caller's paths."""
        paths = [os.path.abspath(source) if os.path.exists(source) else source for source in self.sources]
        return hashlib.sha256(json.dumps(paths).encode()).hexdigest()

    def encoder_arguments(self) -> dict:
        """Return the arguments of `TextEncoder`."""
        is_split = self.chunk is not None
        return {
            "max_length": self.chunk if is_split else self.max_length,
            "overlap": (self.overlap or 0) if is_split else None,
            "dtype": self.dtype,
            "device": self.device,
            "batch_tokens": self.batch_tokens,
        }

    def shard_file_arguments(self, folder: VectorFolder, stored: dict) -> dict:
        """Return the arguments of `shard_file` that are the same for each shard; `stored` as in `settings`."""
        return {
            "dtype": self.vector_dtype,
            "keep_text": self.keep_text,
            "chunks_in_ids": folder.has_chunks_in_ids(stored),
        }
