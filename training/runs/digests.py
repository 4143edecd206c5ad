"""SHA-256 of files, by which it is told whether they are still what was written."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...model_cards import sha256_of
from ...output.progress_bar import byte_progress

_THREADS = 4  # hashing leaves Python's lock to others


def digests(files: Iterable[Path], title: str | None = None) -> list[str]:
    """Return the SHA-256 of each file, in hexadecimal.

    Args:
        files: read in pieces, a few of them at once.
        title: of the progress bar; no bar is shown if None.

    >>> digests([Path("model.safetensors")], "verifying checkpoint-500")
    """
    files = list(files)
    with byte_progress(title is not None) as bar, ThreadPoolExecutor(_THREADS) as pool:
        task = bar.add_task(title or "", total=sum(file.stat().st_size for file in files))
        return list(pool.map(lambda file: sha256_of(file, lambda size: bar.advance(task, size)), files))
