"""Data sets of `datasets`, by a name on the Hub or a folder on this machine."""

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import datasets

from ...output.console import no_warnings, sentence_of
from ...tokenization.vocabulary_maker.corpus import JSON_LINES, TABLES, TEXT, CorpusError, corpus_files
from ...tokenization.vocabulary_maker.csv_table import is_csv
from ..errors import TrainingError
from .arguments import require_files

_DATA_SET = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)  # NAME or OWNER/NAME
_FILES = (
    *TEXT, *JSON_LINES, *TABLES, ".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".md", ".html", ".xml", ".pdf",
    ".doc", ".docx",
)  # fmt: skip


def load_data_set(name: str, split: str = "train", cache: str | Path | None = None, **options) -> datasets.Dataset:
    """Load a split of the data set `NAME` or `NAME:CONFIG`, with further options of `datasets.load_dataset`.

    Raise a TrainingError if it cannot be read.
    """
    path, _, config = name.partition(":")
    try:
        with no_warnings("huggingface_hub"):  # one for each attempt to reach the Hub
            return datasets.load_dataset(path, config or None, split=split, cache_dir=cache and str(cache), **options)
    except Exception as error:
        reason = sentence_of(error).rstrip(".")
        if "data_files" in options:
            raise TrainingError(f"{options['data_files']} cannot be read as a table: {reason}") from None
        raise TrainingError(f"{name} is neither a file nor a data set that can be read: {reason}") from None


def csv_files(folder: str | Path, split: str) -> list[Path]:
    """Return the files of a split of a folder that is a data set, if all are CSV or TSV; else an empty list.

    `datasets` guesses types, so that 01 becomes 1 and NA is missing, and reads quotes in TSV: lines are lost.
    """
    if not Path(folder).is_dir() or not is_data_set(folder):
        return []
    try:
        with tempfile.TemporaryDirectory() as fresh:
            parts = datasets.load_dataset_builder(str(folder), cache_dir=fresh).config.data_files or {}
    except Exception:  # `load_data_set` says why
        return []
    files = [*map(Path, parts.get(split, ()))]
    return files if all(map(is_csv, files)) else []


def require_sources(sources: Iterable[str | Path | None]) -> None:
    """Raise a TrainingError if one of the sources neither exists nor may be the name of a data set."""
    require_files(source for source in filter(None, sources) if Path(source).exists() or not is_data_set(source))


def require_outside(sources: Iterable[str | Path | None], *places: str | Path) -> None:
    """Raise a TrainingError if a folder among the sources has one of the places in it.

    What a run writes there would be read as data when it resumes, unless it is hidden.
    """
    for source in map(Path, filter(None, sources)):
        for place in places:
            folder, written = source.resolve(), Path(place).resolve()
            if not source.is_dir() or folder not in (written, *written.parents):
                continue
            if not any(part.startswith(".") for part in written.relative_to(folder).parts):
                raise TrainingError(
                    f"the folder {source} is read, and {place} would be written into it: name a folder outside of it"
                )


def is_data_set(source: str | Path, also: tuple[str, ...] = ()) -> bool:
    """Return whether a source is the name or the folder of a data set, not files that `corpus_files` finds."""
    path = Path(source)
    if path.is_dir():  # for example of Parquet files
        try:
            return not corpus_files([path], also)
        except CorpusError:
            return any(file.is_file() for file in path.rglob("*"))
    if path.exists():
        return False
    # The Hub is not asked for what looks like a file of this machine.
    name, _, _ = str(source).partition(":")
    return Path(name).suffix.lower() not in _FILES and bool(_DATA_SET.fullmatch(name))
