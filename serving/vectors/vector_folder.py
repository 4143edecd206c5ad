"""A folder of vectors: `run.json`, which says what made them, and a Parquet file for each shard of the input.

A file has the columns `id`, `vector`, a list of fixed size, and where they are kept `text`. It appears whole, and its
metadata hold its name and the digest of its texts, so that one that is damaged, or of other texts, is noticed.
`run.json` lists the files that are done, with their SHA-256. Neither holds a folder of whoever made them.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...output.atomic_folder import sync
from ...output.console import sentence_of
from ...output.extras import needs_extra
from ...output.folder_lock import only_writer
from ...tokenization.whole_file import unique_fields
from ..errors import ServingError
from .encoder import check_finite
from .texts import PARQUET, Shard, digest_of, shard_name

with needs_extra("embed", ServingError):
    import pyarrow
    import pyarrow.parquet

RUN = "run.json"
VECTOR_DTYPES = ("float32", "float16")
_DIGEST, _NAME, _CUT = b"modeling_roformer.texts", b"modeling_roformer.shard", b"modeling_roformer.cut"
_SHARD = re.compile(r"\d{6,}" + re.escape(PARQUET))
_UNFINISHED = ".unfinished"
# What `run.json` says in each version: the fields of a run, and of what is done.
_FIELDS = {
    "model": str, "texts": list, "max_length": int | None, "dtype": str, "shard_size": int, "shards": dict | None,
    "done": dict | None, "model_name": str | None, "model_path": str | None, "longest": int | None, "id_field": str | None,
    "cut_at": int | None,
}  # fmt: skip
_NEEDED = ("model", "texts", "max_length", "dtype", "shard_size")


@dataclass(frozen=True)
class Made:
    """A computed shard.

    name, texts: of its file, and in it; read, left_out: see `Shard`; cut: how many of its texts were cut, at `longest`
    tokens; data: the bytes of its file.
    """

    name: str
    texts: int
    read: float
    left_out: int
    cut: int
    longest: int
    data: bytes | memoryview

    def record(self) -> dict:
        """What `run.json` says of it."""
        return {"texts": self.texts, "cut": self.cut, "sha256": hashlib.sha256(self.data).hexdigest()}


class VectorFolder:
    """See the module. `path` need not exist yet."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def run(self) -> dict | None:
        """What `run.json` holds; None where there is no folder, or an empty one."""
        try:
            text = (self.path / RUN).read_text(encoding="utf-8")
        except FileNotFoundError:
            if self.path.is_dir() and any(not path.name.endswith(_UNFINISHED) for path in self.path.iterdir()):
                raise ServingError(f"{self.path} is not empty and holds no vectors: name a new folder") from None
            return None
        except NotADirectoryError:
            raise ServingError(f"{self.path} is not a folder") from None
        except ValueError:
            text = ""
        try:
            found = json.loads(text, object_pairs_hook=unique_fields)
        except (json.JSONDecodeError, RecursionError):
            raise self._broken("it is not JSON") from None
        except ValueError as error:
            raise self._broken(str(error)) from None
        if not isinstance(found, dict):
            raise self._broken("it is not an object with fields")
        for name, kind in _FIELDS.items():
            value = found.get(name)
            is_count = not isinstance(value, int) or (value > 0 and not isinstance(value, bool))
            if (name in found or name in _NEEDED) and not (isinstance(value, kind) and is_count):
                raise self._broken(f"{name} is {_brief(value)}")
        for name, record in (found.get("shards") or {}).items():
            kinds = {"texts": int, "cut": int, "sha256": str}
            if not isinstance(record, dict) or any(not isinstance(record.get(key), kinds[key]) for key in kinds):
                raise self._broken(f"shards has {_brief(record)} for {name}")
        if any(
            not isinstance((found.get("done") or {"texts": 0, "shards": 0}).get(key), int)
            for key in ("texts", "shards")
        ):
            raise self._broken(f"done is {_brief(found['done'])}")
        return found

    def _broken(self, reason: str) -> ServingError:
        return ServingError(
            f"{self.path / RUN} is damaged: {reason}; bring back a copy of it, or embed the texts into a new folder"
        )

    def check(self, run: dict) -> None:
        """Raise a ServingError where other vectors have been begun than those of `run`; `writing` keeps it so."""
        begun = self.run()
        if begun is None or not self.files():
            return
        for path in self.files():
            if not _SHARD.fullmatch(path.name):
                raise _is_foreign(path)
        if others := [name for name, value in run.items() if begun.get(name) != value]:
            differences = ", ".join(f"{name} {_brief(begun.get(name))} and not {_brief(run[name])}" for name in others)
            raise ServingError(f"{self.path} holds vectors with {differences}: name another folder for these")

    def check_files(self, run: dict) -> list[Path]:
        """The files of the shards, once those that `run` lists are there and no others that should not be.

        Where none are listed, as in a folder of an older version, as many are there as were done, and in their order.

        Raises:
            ServingError: which file is missing, or too many.
        """
        files, done = self.files(), run.get("done")
        there, listed = {path.name for path in files}, run.get("shards")
        again = "the command that made it makes it again, and no other"
        if listed is None:
            expected = {shard_name(number) for number in range(done["shards"])} if done else set()
        else:
            expected = set(listed)
        if missing := sorted(expected - there):
            others = f" ({len(missing):,} are)" if len(missing) > 1 else ""
            raise ServingError(f"{self.path / missing[0]} is missing{others}: {again}")
        if done and (more := sorted(there - expected)):
            raise _is_foreign(self.path / more[0])
        return files

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While the block runs, no other process writes here. A folder that stays empty does not stay."""
        with ExitStack() as stack:
            try:
                stack.enter_context(only_writer(self.path))
            except (BlockingIOError, FileExistsError) as error:
                raise ServingError(str(error)) from None
            yield

    def write_run(self, run: dict) -> None:
        self.write(RUN, (json.dumps(run, indent=2, ensure_ascii=False) + "\n").encode())

    def write(self, name: str, data: bytes | memoryview) -> None:
        """A file that is there whole or not at all; what a killed process left of it is overwritten."""
        new = self.path / f".{name}{_UNFINISHED}"
        try:
            new.write_bytes(data)
            sync(new)
            os.replace(new, self.path / name)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def files(self) -> list[Path]:
        """Of the shards that are there, in the order of the input."""
        return sorted(path for path in self.path.glob(f"*{PARQUET}") if not path.name.startswith("."))

    def width(self) -> int:
        """Of a vector."""
        with open_shard(self.files()[0]) as file:
            return file.schema_arrow.field("vector").type.list_size

    def made(self, name: str, texts: int) -> Made:
        """The shard of a file that is whole, of which `run.json` says nothing yet."""
        data = (self.path / name).read_bytes()
        with open_shard(self.path / name, pyarrow.BufferReader(data)) as file:
            cut, longest = (file.schema_arrow.metadata or {}).get(_CUT, b"0 0").split()  # older versions counted none
        return Made(name, texts, 0, 0, int(cut), int(longest), data)

    def has(self, shard: Shard, record: dict | None = None) -> bool:
        """Whether the vectors of exactly these texts are there, and every byte of them is sound."""
        path = self.path / shard.name
        try:
            with read_shard(path, record) as file:
                if (file.schema_arrow.metadata or {}).get(_DIGEST) != shard.digest.encode():
                    return False
                return sum(len(batch) for batch in file.iter_batches()) == len(shard)
        except (OSError, ServingError, pyarrow.ArrowException):
            return False


def _is_foreign(path: Path) -> ServingError:
    return ServingError(f"{path} is none of the files of these vectors: take it out of the folder")


def shard_file(shard: Shard, vectors: np.ndarray, cut: int, longest: int, *, dtype: str, keep_text: bool) -> memoryview:
    """The bytes of a shard's file.

    Args:
        vectors: float32 of shape (len(shard), width).
        cut, longest: see `Made`.
        dtype: what is stored, one of `VECTOR_DTYPES`.
    """
    check_finite(vectors, shard.ids, "compute with --dtype float32, if the model's weights are numbers")
    with np.errstate(over="ignore"):
        values = vectors.astype(dtype)
    check_finite(values, shard.ids, f"{dtype} does not hold its numbers, so store with --vector-dtype float32")
    columns = {
        "id": pyarrow.array(shard.ids, pyarrow.string()),
        "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), values.shape[1]),
    }
    if keep_text:
        columns["text"] = pyarrow.array(shard.texts, pyarrow.string())
    table = pyarrow.table(columns).replace_schema_metadata(
        {_DIGEST: shard.digest, _NAME: shard.name, _CUT: f"{cut} {longest}"}
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(
        table,
        sink,
        row_group_size=len(shard),
        # Vectors are not compressible.
        compression={"id": "zstd", "text": "zstd", "vector.list.element": "none"},
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    return memoryview(sink.getvalue())


@contextmanager
def open_shard(path: Path, source: object = None) -> Iterator[pyarrow.parquet.ParquetFile]:
    """A file of a shard; a ServingError where it is damaged. `source` is what is read instead of the file itself."""
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
    """A file of a shard, read once and whole; a ServingError where it is damaged, or not the one that `run.json` lists.

    Without a record it is what it says of itself that counts: its name, the checksums of its pages and, where it has its
    texts, their digest.
    """
    data = path.read_bytes()
    if record is not None and hashlib.sha256(data).hexdigest() != record["sha256"]:
        raise damaged(path, f"it is not the file that {RUN} lists")
    with open_shard(path, pyarrow.BufferReader(data)) as file:
        metadata = file.schema_arrow.metadata or {}
        name = metadata.get(_NAME, path.name.encode()).decode(errors="replace")
        if name != path.name:
            raise damaged(path, f"it is a copy of {name}")
        if record is None and _DIGEST in metadata and {"id", "text"} <= set(file.schema_arrow.names):
            rows = file.read(["id", "text"])
            if digest_of(rows["id"].to_pylist(), rows["text"].to_pylist()).encode() != metadata[_DIGEST]:
                raise damaged(path, "its texts are not those that it was made of")
        yield file


def damaged(path: Path, reason: str) -> ServingError:
    """The error that says so of a shard's file."""
    return ServingError(f"{path} is damaged: the command that made it makes this file again, and no other ({reason})")


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) < 60 else f"{text[:56]} …"
