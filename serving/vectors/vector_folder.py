"""A folder of vectors: `run.json`, which says what made them, and a Parquet file for each shard of the input.

A file has the columns `id`, `vector`, a list of fixed size, and where they are kept `text`. It appears whole, and its
metadata hold the digest of its texts, so that one that is damaged, or of other texts, is noticed.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...output.output_folder import sync
from ...output.sentence import sentence_of
from ...output.temporary_sibling import lock_folder
from ..errors import ServingError
from .extra import extra
from .texts import PARQUET, Shard

with extra("embed"):
    import pyarrow
    import pyarrow.parquet

RUN = "run.json"
VECTOR_DTYPES = ("float32", "float16")
_DIGEST = b"modeling_roformer.texts"


@dataclass(frozen=True)
class Made:
    """A computed shard: its name, its number of texts, the bytes of the input read for it, and its file's."""

    name: str
    texts: int
    read: float
    data: bytes | memoryview


class VectorFolder:
    """See the module. `path` need not exist yet."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def run(self) -> dict | None:
        """What `run.json` holds; None where there is no folder, or an empty one."""
        try:
            found = json.loads((self.path / RUN).read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError
            return found
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            raise ServingError(f"{self.path} is not a folder") from None
        except ValueError:
            raise ServingError(f"{self.path / RUN} is broken: it is not JSON") from None
        if self.path.is_dir() and any(self.path.iterdir()):
            raise ServingError(f"{self.path} is not empty and holds no vectors: name a new folder")
        return None

    def check(self, run: dict) -> None:
        """A ServingError where other vectors have been begun than those of `run`."""
        begun = self.run()
        if begun is None or not self.files():
            return
        if others := [name for name, value in run.items() if begun.get(name) != value]:
            differences = ", ".join(f"{name} {_brief(begun.get(name))} and not {_brief(run[name])}" for name in others)
            raise ServingError(f"{self.path} holds vectors with {differences}: name another folder for these")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While the block runs, no other process writes here. A folder that stays empty does not stay."""
        is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            lock = lock_folder(self.path)
        except BlockingIOError:
            raise ServingError(f"{self.path} is being written by another process: wait until it has ended") from None
        except OSError:  # a file system without locks
            lock = None
        try:
            yield
        finally:
            if lock is not None:
                os.close(lock)
            if is_new:
                with suppress(OSError):
                    self.path.rmdir()

    def write_run(self, run: dict) -> None:
        self.write(RUN, (json.dumps(run, indent=2, ensure_ascii=False) + "\n").encode())

    def write(self, name: str, data: bytes | memoryview) -> None:
        """A file that is there whole or not at all; what a killed process left of it is overwritten."""
        new = self.path / f".{name}.unfinished"
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

    def has(self, shard: Shard) -> bool:
        """Whether the vectors of exactly these texts are there, and every byte of them is sound."""
        path = self.path / shard.name
        try:
            with open_shard(path) as file:
                if (file.schema_arrow.metadata or {}).get(_DIGEST) != shard.digest.encode():
                    return False
                return sum(len(batch) for batch in file.iter_batches()) == len(shard)
        except (OSError, ServingError, pyarrow.ArrowException):
            return False


def shard_file(shard: Shard, vectors: np.ndarray, dtype: str, keep_text: bool) -> memoryview:
    """The bytes of a shard's file.

    Args:
        vectors: float32 of shape (len(shard), width).
        dtype: what is stored, one of `VECTOR_DTYPES`.
    """
    with np.errstate(over="ignore"):
        values = vectors.astype(dtype)
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        at = shard.ids[int(np.argmin(finite))]
        raise ServingError(
            f"the vector of {at} is not finite: compute with --dtype float32, store with --vector-dtype float32"
        )
    columns = {
        "id": pyarrow.array(shard.ids, pyarrow.string()),
        "vector": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.reshape(-1)), values.shape[1]),
    }
    if keep_text:
        columns["text"] = pyarrow.array(shard.texts, pyarrow.string())
    table = pyarrow.table(columns).replace_schema_metadata({_DIGEST: shard.digest})
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
def open_shard(path: Path) -> Iterator[pyarrow.parquet.ParquetFile]:
    """A file of a shard; a ServingError where it is damaged."""
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except FileNotFoundError:
        raise
    except (OSError, pyarrow.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = sentence_of(error).rstrip(".")
        raise ServingError(
            f"{path} is damaged: the command that made it makes this file again, and no other ({reason})"
        ) from None


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) < 60 else f"{text[:56]} …"
