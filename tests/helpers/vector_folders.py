"""Folders of vectors, and their settings."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

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
