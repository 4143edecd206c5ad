"""A folder of vectors: a Parquet file for each shard of the input, and `_run.parquet` with the settings.

A shard has the columns `id`, `vector` (a list of fixed size) and, if texts are kept, `text`. If texts are split into
chunks, each chunk has a row with the id of its text, and its number in the column `chunk`, from 1. A shard appears only
when it is complete. Its metadata have the digest of its texts.

`_run.parquet` has the same columns and no rows, so that readers of Parquet take the folder for one table: some of them
read every file in it, whatever its name. The settings are JSON in its metadata, with a list of the finished shards and
their SHA-256. No file has a path of the machine that made it.
"""

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from modeling_roformer.files import write_whole
from modeling_roformer.output.extras import needs_extra

from ..errors import ServingError
from .differences import settings_that_differ
from .encoder import Rows, check_finite
from .texts import PARQUET, Shard

with needs_extra("embed", ServingError):
    import pyarrow
    import pyarrow.parquet

SETTINGS_FILE = "_run.parquet"
_OLD_SETTINGS_FILE = "run.json"  # of the first versions
VECTOR_DTYPES = ("float32", "float16")
# Keys in the metadata of Parquet.
_DIGEST_KEY = b"modeling_roformer.texts"
_SETTINGS_KEY = b"modeling_roformer.run"
_SHARD = re.compile(r"\d{6,}" + re.escape(PARQUET))
_UNFINISHED_SUFFIX = ".unfinished"


@dataclass(frozen=True)
class ComputedShard:
    """A computed shard: its name, its entry in the settings, `read` and `left_out` of the `Shard`, and its file.

    `batch_tokens` is the encoder's after the shard.
    """

    name: str
    record: dict
    read: float
    left_out: int
    data: bytes
    batch_tokens: int


class VectorFolder:
    """A folder of vectors (see the module), which need not exist yet."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def settings(self) -> dict | None:
        """Read the settings; return None if the folder is missing or empty."""
        place = self.path / SETTINGS_FILE
        try:
            schema = pyarrow.parquet.read_schema(place)
            settings = json.loads((schema.metadata or {}).get(_SETTINGS_KEY, b""))
            is_old = settings.get("chunk") and "chunk" not in schema.names  # ids had the numbers of chunks
        except FileNotFoundError:
            names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
            if all(name.endswith(_UNFINISHED_SUFFIX) for name in names):
                return None
            is_old = _OLD_SETTINGS_FILE in names
            if not is_old:
                raise ServingError(
                    f"{self.path} has other files but no {SETTINGS_FILE}, so it is not a folder of vectors: name "
                    "another, or restore that file if it was one"
                ) from None
        except (ValueError, pyarrow.ArrowException):
            raise ServingError(f"{place} is damaged: restore a copy, or embed the texts into a new folder") from None
        if is_old:
            raise ServingError(
                f"{self.path} holds vectors in a format of earlier versions, which is not read: embed the texts again "
                "into a new folder"
            )
        return settings

    def check(self, stored: dict, settings: dict) -> None:
        """Raise ServingError if the folder has vectors, and its settings, `stored`, differ from `settings`."""
        if self.files() and (differences := settings_that_differ(stored, settings)):
            raise ServingError(f"{self.path} holds vectors with other settings ({differences}): name another folder")

    def remove_unfinished(self) -> None:
        """Remove the files that a killed process left."""
        for leftover in self.path.glob(f".*{_UNFINISHED_SUFFIX}"):
            if leftover.is_dir():  # of an index of words
                shutil.rmtree(leftover)
            else:
                leftover.unlink()

    def write_settings(self, settings: dict, shard: bytes | None = None) -> None:
        """Write the settings, with the columns of a shard.

        Args:
            shard: content of the shard's file; by default, the first shard on disk is read.
        """
        settings = settings | {"shards": dict(sorted(settings["shards"].items()))}
        columns = pyarrow.parquet.read_schema(pyarrow.BufferReader(shard) if shard else self.files()[0])
        sink = pyarrow.BufferOutputStream()
        metadata = {_SETTINGS_KEY: json.dumps(settings, indent=2, ensure_ascii=False)}
        # Without a row group: `datasets` refuses an empty one.
        pyarrow.parquet.ParquetWriter(sink, columns.with_metadata(metadata)).close()
        write_whole(self.path / SETTINGS_FILE, sink.getvalue().to_pybytes())

    def files(self) -> list[Path]:
        """Return the files of the shards on disk, in the order of the input."""
        return sorted(path for path in self.path.glob(f"*{PARQUET}") if _SHARD.fullmatch(path.name))

    def width(self) -> int:
        """Return the number of dimensions of the vectors."""
        return pyarrow.parquet.read_schema(self.files()[0]).field("vector").type.list_size

    def rows(self) -> int:
        """Return the number of vectors on disk."""
        return sum(pyarrow.parquet.read_metadata(path).num_rows for path in self.files())

    def read(self, name: str, record: dict) -> pyarrow.Table:
        """Read a shard; raise ServingError if it is missing, or not the file that the settings list in `record`."""
        path = self.path / name
        again = "run the same `roformer embed` again, which replaces only this file"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise ServingError(f"{path} is missing: {again}") from None
        if hashlib.sha256(data).hexdigest() != record["sha256"]:
            raise ServingError(f"{path} is damaged (it differs from the file that {SETTINGS_FILE} lists): {again}")
        return pyarrow.parquet.read_table(pyarrow.BufferReader(data))

    def has(self, shard: Shard, record: dict | None) -> bool:
        """Return whether the file of exactly these texts is there, undamaged and listed in the settings."""
        try:
            table = self.read(shard.name, record) if record is not None else None
        except ServingError:
            return False
        return table is not None and (table.schema.metadata or {}).get(_DIGEST_KEY) == shard.digest.encode()


def first_chunks(table: pyarrow.Table) -> np.ndarray | None:
    """Return the rows of a shard where a text begins, or None if the texts were not split into chunks."""
    return np.flatnonzero(table["chunk"].to_numpy() == 1) if "chunk" in table.column_names else None


def texts_of(table: pyarrow.Table) -> list[list[dict]]:
    """Return the texts of a shard: a list of chunks for each, with `id` and, if stored, `text` and `chunk`."""
    starts, rows = first_chunks(table), table.drop_columns("vector").to_pylist()
    ends = range(1, len(rows) + 1) if starts is None else [*starts[1:], len(rows)]
    starts = range(len(rows)) if starts is None else starts
    return [rows[start:end] for start, end in zip(starts, ends, strict=True)]


def shard_file(shard: Shard, rows: Rows, vectors: np.ndarray, dtype: str, keep_text: bool) -> bytes:
    """Return the content of a shard's file.

    Args:
        rows: of the shard's texts.
        vectors: float32 of shape (len(rows.ids), width).
        dtype: of the stored vectors, one of `VECTOR_DTYPES`.

    Raises:
        ServingError: a vector is not finite, or not in `dtype`.
    """
    check_finite(vectors, rows.names, "compute with --dtype float32, or check the model's weights")
    with np.errstate(over="ignore"):
        values = vectors.astype(dtype)
    check_finite(values, rows.names, f"it exceeds {dtype}, so store with --vector-dtype float32")
    numbers = {} if rows.chunks is None else {"chunk": pyarrow.array(rows.chunks, pyarrow.int32())}
    columns = {
        "id": pyarrow.array(rows.ids, pyarrow.string()),
        **numbers,
        "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), values.shape[1]),
    }
    if keep_text:
        columns["text"] = pyarrow.array(rows.texts, pyarrow.string())
    table = pyarrow.table(columns).replace_schema_metadata({_DIGEST_KEY: shard.digest})
    sink = pyarrow.BufferOutputStream()
    # Vectors are not compressible.
    compression = {"id": "zstd", "chunk": "zstd", "text": "zstd", "vector.list.element": "none"}
    pyarrow.parquet.write_table(
        table, sink, row_group_size=len(rows.ids), compression=compression, use_dictionary=False, write_statistics=False
    )
    return sink.getvalue().to_pybytes()
