"""A folder of vectors: a Parquet file for each shard of the input, and `_run.parquet` with the settings.

A shard has the columns `id`, `vector` (a list of fixed size) and, if texts are kept, `text`. It appears only when it is
complete. Its metadata have its name and the digest of its texts, to detect damaged files and files of other texts.

`_run.parquet` has the same columns and no rows, so that readers of Parquet take the folder for one table: some of them
read every file in it, whatever its name. The settings are JSON in its metadata, with a list of the finished shards and
their SHA-256. Older versions wrote `run.json`. No file has a path of the machine that made it.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ...files.atomic_file import sync
from ...output.console import sentence_of
from ...output.extras import needs_extra
from ...tokenization.vocabulary import unique_fields
from ..errors import ServingError
from .encoder import FIRST_CHUNK, Rows, check_finite
from .texts import PARQUET, Shard, digest_of, shard_name

with needs_extra("embed", ServingError):
    import pyarrow
    import pyarrow.parquet

RUN, _OLD_RUN = "_run.parquet", "run.json"
VECTOR_DTYPES = ("float32", "float16")
_DIGEST, _NAME, _CUT = b"modeling_roformer.texts", b"modeling_roformer.shard", b"modeling_roformer.cut"
_CHUNKED = b"modeling_roformer.chunked"  # digest of the texts that were split, and the number of chunks
_SETTINGS = b"modeling_roformer.run"
_SHARD = re.compile(r"\d{6,}" + re.escape(PARQUET))
_UNFINISHED = ".unfinished"
_HASHES = 1 << 22  # hashes of ids in memory at once
# Settings of a run, in every version, and their types.
_FIELDS = {
    "model": str, "texts": list, "max_length": int | None, "dtype": str, "shard_size": int, "shards": dict | None,
    "done": dict | None, "model_name": str | None, "model_path": str | None, "longest": int | None,
    "id_field": str | None, "cut_at": int | None, "sample_by": str | None, "chunk": int | None,
}  # fmt: skip
_NEEDED = ("model", "texts", "max_length", "dtype", "shard_size")


@dataclass(frozen=True)
class Made:
    """A computed shard; `read` and `left_out` as in `Shard`."""

    name: str  # of its file
    texts: int
    read: float
    left_out: int
    cut: int  # texts truncated to `longest` tokens
    longest: int
    data: bytes | memoryview  # content of its file

    def record(self) -> dict:
        """Return the shard's entry in the settings."""
        return {"texts": self.texts, "cut": self.cut, "sha256": hashlib.sha256(self.data).hexdigest()}


class VectorFolder:
    """A folder of vectors (see the module), which need not exist yet."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def run(self) -> dict | None:
        """Read the settings; return None if the folder is missing or empty."""
        try:
            found = json.loads(self._settings(), object_pairs_hook=unique_fields)
        except FileNotFoundError:
            if self.path.is_dir() and any(not path.name.endswith(_UNFINISHED) for path in self.path.iterdir()):
                raise ServingError(
                    f"{self.path} has other files but no {RUN}, so it is not a folder of vectors: name another, or "
                    "restore that file if it was one"
                ) from None
            return None
        except NotADirectoryError:
            raise ServingError(f"{self.path} is not a folder") from None
        except (ValueError, RecursionError, pyarrow.ArrowException) as error:
            raise self._broken(f"it cannot be read ({sentence_of(error)})") from None
        if not isinstance(found, dict):
            raise self._broken("it is not a JSON object")
        for name, kind in _FIELDS.items():
            value = found.get(name)
            is_count = not isinstance(value, int) or (value > 0 and not isinstance(value, bool))
            if (name in found or name in _NEEDED) and not (isinstance(value, kind) and is_count):
                raise self._broken(f"{name} is {_brief(value)}")
        kinds = {"texts": int, "cut": int, "sha256": str}
        for name, record in (found.get("shards") or {}).items():
            if not isinstance(record, dict) or any(not isinstance(record.get(key), kinds[key]) for key in kinds):
                raise self._broken(f"shards has {_brief(record)} for {name}")
        done = found.get("done") or {"texts": 0, "shards": 0}
        if not all(isinstance(done.get(key), int) for key in ("texts", "shards")):
            raise self._broken(f"done is {_brief(done)}")
        return found

    def _settings(self) -> bytes:
        if (self.path / RUN).exists():
            return (pyarrow.parquet.read_schema(self.path / RUN).metadata or {}).get(_SETTINGS, b"")
        return (self.path / _OLD_RUN).read_bytes()

    def _broken(self, reason: str) -> ServingError:
        name = RUN if (self.path / RUN).exists() else _OLD_RUN
        return ServingError(
            f"{self.path / name} is damaged: {reason}. Restore a copy, or embed the texts into a new folder"
        )

    def check(self, run: dict) -> None:
        """Raise ServingError if the folder has vectors with other settings than `run`. Call it while the folder is
        locked."""
        begun = self.run()
        if begun is None or not self.files():
            return
        for path in self.files():
            if not _SHARD.fullmatch(path.name):
                raise _is_foreign(path)
        if others := [name for name, value in run.items() if begun.get(name) != value]:
            differences = ", ".join(f"{name} {_brief(begun.get(name))}, not {_brief(run[name])}" for name in others)
            raise ServingError(f"{self.path} holds vectors with other settings ({differences}): name another folder")

    def check_files(self, run: dict) -> list[Path]:
        """Return the files of the shards, which must be those of `run`. Older versions have only their number.

        Raises:
            ServingError: a file is missing, or does not belong to the folder.
        """
        files, done = self.files(), run.get("done")
        there, listed = {path.name for path in files}, run.get("shards")
        if listed is None:
            expected = {shard_name(number) for number in range(done["shards"])} if done else set()
        else:
            expected = set(listed)
        if missing := sorted(expected - there):
            others = f", and {len(missing) - 1:,} others are" if len(missing) > 1 else ""
            raise ServingError(f"{self.path / missing[0]} is missing{others}: run the same `roformer embed` again")
        if done and (more := sorted(there - expected)):
            raise _is_foreign(self.path / more[0])
        return files

    def write_run(self, run: dict, made: Made | None = None) -> None:
        """Write the settings. The columns are those of `made`, or of the first shard on disk."""
        run = run | {"shards": dict(sorted(run["shards"].items()))}
        columns = pyarrow.parquet.read_schema(pyarrow.BufferReader(made.data) if made else self.files()[0])
        sink = pyarrow.BufferOutputStream()
        settings = {_SETTINGS: json.dumps(run, indent=2, ensure_ascii=False)}
        # Without a row group: `datasets` refuses an empty one.
        pyarrow.parquet.ParquetWriter(sink, columns.with_metadata(settings)).close()
        self.write(RUN, memoryview(sink.getvalue()))
        (self.path / _OLD_RUN).unlink(missing_ok=True)

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Write a file that appears only when it is complete; overwrite what a killed process left of it."""
        new = self.path / f".{name}{_UNFINISHED}"
        try:
            new.write_bytes(data)
            sync(new)
            os.replace(new, self.path / name)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def files(self) -> list[Path]:
        """Return the files of the shards on disk, in the order of the input."""
        return sorted(path for path in self.path.glob(f"*{PARQUET}") if path.name != RUN and path.name[0] != ".")

    def width(self) -> int:
        """Return the width of a vector."""
        with open_shard(self.files()[0]) as file:
            return file.schema_arrow.field("vector").type.list_size

    def rows(self) -> int:
        """Return the number of all vectors."""
        return sum(map(len, _ids(self)))

    def made(self, name: str, texts: int) -> Made:
        """Read a complete file that the settings do not list yet."""
        data = (self.path / name).read_bytes()
        with open_shard(self.path / name, pyarrow.BufferReader(data)) as file:
            cut, longest = (file.schema_arrow.metadata or {}).get(_CUT, b"0 0").split()  # older versions counted none
        return Made(name, texts, 0, 0, int(cut), int(longest), data)

    def has(self, shard: Shard, record: dict | None = None) -> bool:
        """Return whether the file of exactly these texts is there and undamaged."""
        path = self.path / shard.name
        try:
            with read_shard(path, record) as file:
                metadata, rows = file.schema_arrow.metadata or {}, sum(len(batch) for batch in file.iter_batches())
                if _CHUNKED in metadata:
                    return metadata[_CHUNKED] == f"{shard.digest} {rows}".encode()
                return metadata.get(_DIGEST) == shard.digest.encode() and rows == len(shard)
        except (OSError, ServingError, pyarrow.ArrowException):
            return False


def _is_foreign(path: Path) -> ServingError:
    return ServingError(f"{path} does not belong to these vectors: take it out of the folder")


def make_shard(shard: Shard, rows: Rows, vectors: np.ndarray, longest: int, *, dtype: str, keep_text: bool) -> Made:
    """Return a computed shard with the content of its file.

    Args:
        rows: of the shard's texts.
        vectors: float32 of shape (len(rows.ids), width).
        longest: see `Made`.
        dtype: of the stored vectors, one of `VECTOR_DTYPES`.
    """
    check_finite(vectors, rows.ids, "compute with --dtype float32, or check the model's weights")
    with np.errstate(over="ignore"):
        values = vectors.astype(dtype)
    check_finite(values, rows.ids, f"it exceeds {dtype}, so store with --vector-dtype float32")
    columns = {
        "id": pyarrow.array(rows.ids, pyarrow.string()),
        "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), values.shape[1]),
    }
    if keep_text:
        columns["text"] = pyarrow.array(rows.texts, pyarrow.string())
    metadata = {_DIGEST: shard.digest, _NAME: shard.name, _CUT: f"{rows.cut} {longest}"}
    if rows.ids != shard.ids:
        metadata |= {_DIGEST: digest_of(rows.ids, rows.texts), _CHUNKED: f"{shard.digest} {len(rows.ids)}"}
    table = pyarrow.table(columns).replace_schema_metadata(metadata)
    sink = pyarrow.BufferOutputStream()
    compression = {"id": "zstd", "text": "zstd", "vector.list.element": "none"}  # vectors are not compressible
    pyarrow.parquet.write_table(
        table, sink, row_group_size=len(rows.ids), compression=compression, use_dictionary=False,
        write_statistics=False, write_page_checksum=True,
    )  # fmt: skip
    return Made(shard.name, len(shard), shard.read, shard.left_out, rows.cut, longest, memoryview(sink.getvalue()))


@contextmanager
def open_shard(path: Path, source: object = None) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a shard's file, or its content in `source`; raise ServingError if it is damaged."""
    try:
        with pyarrow.parquet.ParquetFile(source or path, page_checksum_verification=True) as file:
            yield file
    except FileNotFoundError:
        raise
    except (OSError, pyarrow.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise damaged(path, sentence_of(error).rstrip(".")) from None


@contextmanager
def read_shard(path: Path, record: dict | None) -> Iterator[pyarrow.parquet.ParquetFile]:
    """Open a shard's file; raise ServingError if it is damaged, or not the one that the settings list in `record`.

    Without a record, its own metadata decide: its name, the checksums of its pages and, if it has its texts, their
    digest.
    """
    data = path.read_bytes()
    if record is not None and hashlib.sha256(data).hexdigest() != record["sha256"]:
        raise damaged(path, f"it differs from the file that {RUN} lists")
    with open_shard(path, pyarrow.BufferReader(data)) as file:
        metadata = file.schema_arrow.metadata or {}
        name = metadata.get(_NAME, path.name.encode()).decode(errors="replace")
        if name != path.name:
            raise damaged(path, f"it is a copy of {name}")
        if record is None and _DIGEST in metadata and {"id", "text"} <= set(file.schema_arrow.names):
            rows = file.read(["id", "text"])
            if digest_of(rows["id"].to_pylist(), rows["text"].to_pylist()).encode() != metadata[_DIGEST]:
                raise damaged(path, "its texts do not match their digest")
        yield file


def damaged(path: Path, reason: str) -> ServingError:
    """Return the error for a shard's file."""
    return ServingError(
        f"{path} is damaged ({reason}): run the same `roformer embed` again, which replaces only this file"
    )


def repeated_ids(folder: VectorFolder, at_once: int = _HASHES, chunked: bool = False) -> tuple[int, str | None]:
    """Return the number of different ids of texts that appear more than once, and one of them.

    Memory is bounded: 64-bit hashes are compared, a part of them at a time, and then the ids that share a hash.
    """
    every = partial(_ids_of_texts if chunked else _ids, folder)
    total = sum(map(len, every()))
    parts = -(-total // at_once)
    count, example = 0, None
    for part in range(parts):
        hashes = (_hash(ids) for ids in every())
        hashes = np.sort(np.concatenate([some[some % parts == part] for some in hashes]))
        suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        if len(suspects):
            seen = Counter()
            for ids in every():
                seen.update(ids[np.isin(_hash(ids), suspects)])
            repeated = [id_ for id_, times in seen.items() if times > 1]
            count += len(repeated)
            example = example or next(iter(repeated), None)
    return count, example


def _hash(ids: np.ndarray) -> np.ndarray:
    from pandas.util import hash_array

    return hash_array(ids, categorize=False)


def _ids(folder: VectorFolder) -> Iterator[np.ndarray]:
    for path in folder.files():
        with open_shard(path) as file:
            yield file.read(["id"])["id"].to_numpy()


def _ids_of_texts(folder: VectorFolder) -> Iterator[np.ndarray]:
    for ids in _ids(folder):
        yield np.array([id_.removesuffix(FIRST_CHUNK) for id_ in ids if id_.endswith(FIRST_CHUNK)], dtype=object)


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) < 60 else f"{text[:56]} …"
