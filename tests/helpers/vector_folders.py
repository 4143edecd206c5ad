"""Folders of vectors, their settings, and a model that makes bad ones."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer

SETTINGS = b"modeling_roformer.run"


def shards_of(folder: Path) -> list[Path]:
    """Return the files with vectors."""
    return sorted(path for path in folder.glob("*.parquet") if path.name[0] != "_")


def read_vectors(folder: Path) -> tuple[list[str], np.ndarray, list[str] | None]:
    """Return the ids, vectors, and texts or None, of all shards."""
    table = pyarrow.concat_tables([pyarrow.parquet.read_table(path) for path in shards_of(folder)])
    texts = table["text"].to_pylist() if "text" in table.column_names else None
    return table["id"].to_pylist(), np.array(table["vector"].to_pylist(), dtype=np.float32), texts


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(".unfinished")}


def read_settings(folder: Path) -> dict:
    """Return the settings of a run, from the metadata of its empty table."""
    return json.loads(pyarrow.parquet.read_schema(folder / "_run.parquet").metadata[SETTINGS])


def write_settings(folder: Path, settings: dict | str) -> None:
    """Replace the settings of a run by a dict or by JSON."""
    text = settings if isinstance(settings, str) else json.dumps(settings)
    schema = pyarrow.parquet.read_schema(folder / "_run.parquet")
    pyarrow.parquet.ParquetWriter(folder / "_run.parquet", schema.with_metadata({SETTINGS: text})).close()


def with_a_word_of_nan(model: Path, folder: Path, word: str) -> Path:
    """Copy a model whose vectors are not finite for texts with a word; return the folder."""
    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    (embeddings,) = (weights[name] for name in weights if name.endswith("word_embeddings.weight"))
    (id_,) = AutoTokenizer.from_pretrained(folder)(word, add_special_tokens=False)["input_ids"]
    embeddings[id_] = np.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


class Killed(BaseException):
    """Stand-in for SIGKILL, which would end the test."""


@contextmanager
def killed_after(renamed: int, monkeypatch) -> Iterator[pytest.MonkeyPatch]:
    """Kill the block when it renames one file more than `renamed`; a killed process tidies nothing up."""
    replace, count = os.replace, 0

    def kill(new, path):
        nonlocal count
        count += 1
        if count > renamed:
            raise Killed
        replace(new, path)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", kill)
        patch.setattr(Path, "unlink", lambda *args, **options: None)
        yield patch
