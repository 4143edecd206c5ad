"""Folders of vectors: their settings, and the formats of older versions."""

import hashlib
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


def with_run_json(folder: Path) -> Path:
    """Convert a folder of vectors to the format that had its settings in `run.json`; return that file."""
    path = folder / "run.json"
    path.write_text(json.dumps(read_settings(folder), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "_run.parquet").unlink()
    return path


def with_chunks_in_ids(folder: Path) -> None:
    """Convert a folder of chunks to the format of version 0.3: no column `chunk`, and ids as `texts.txt:1#2`."""
    settings = read_settings(folder)
    for path in shards_of(folder):
        table = pyarrow.parquet.read_table(path)
        chunks = zip(table["id"].to_pylist(), table["chunk"].to_pylist(), strict=True)
        vectors = table["vector"].combine_chunks()
        columns = {
            "id": pyarrow.array([f"{id_}#{number}" for id_, number in chunks]),
            "vector": pyarrow.FixedSizeListArray.from_arrays(vectors.flatten(), vectors.type.list_size),
            **({"text": table["text"]} if "text" in table.column_names else {}),
        }
        compression = {"id": "zstd", "text": "zstd", "vector.list.element": "none"}
        pyarrow.parquet.write_table(
            pyarrow.table(columns).replace_schema_metadata(table.schema.metadata),
            path,
            row_group_size=len(table),
            compression=compression,
            use_dictionary=False,
            write_statistics=False,
        )
        settings["shards"][path.name]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    schema = pyarrow.parquet.read_schema(path)
    settings = {SETTINGS: json.dumps(settings, indent=2, ensure_ascii=False)}
    pyarrow.parquet.ParquetWriter(folder / "_run.parquet", schema.with_metadata(settings)).close()


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
