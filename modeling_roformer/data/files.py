"""Files of a corpus or of a data set: which files of a folder are read, in which order, and which are refused.

Paths are taken literally: `*` and `[` in a name are ordinary characters.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from modeling_roformer.output.console import report_once, sentence_of

from .errors import DataError
from .formats import READABLE, SUFFIXES, TEXT, check_name, is_file_name, suffix_of

# Splits of a data set, and the words of `datasets` that name them.
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SEPARATORS = re.compile(r"[-._ 0-9]+")
_ABOUT = re.compile(r"(README|LICEN[CS]E)([-._ ].*)?", re.IGNORECASE)  # files about the data
_ABOUT_DATA_SETS = ("dataset_info.json", "dataset_infos.json")  # of `datasets`, which skips them too
_PATTERN = re.compile(r"[][*?]")


def find_files(sources: Iterable[str | Path], split: str | None = None) -> list[Path]:
    """Return the files of a corpus, or of a split of a data set, each once.

    A folder as a corpus has all visible files below it, in the order of the parts of their paths, that are text, JSON
    (a file without a suffix too) or tables. As a data set it has the files of a split, by the words of `datasets` in
    their names or in the names of their folders: train, training; validation, valid, val, dev; test, testing, eval,
    evaluation. If no name has such a word, all files are of the split "train".

    In both, hidden files and dataset_info.json are skipped, and README and LICENSE unless they are JSON or tables.
    Files of unknown suffixes are skipped too. Their number is printed on stderr, and the number of texts such as
    README.txt.

    Args:
        sources: files and folders. A file that is named is always read, whatever its suffix and the split.
        split: "train", "validation" or "test" of a data set; None for a corpus.

    Raises:
        DataError: a path does not exist; a file is of a format that is not read; a folder has no file to read, or, as
            a data set, files without a split, files of two formats, or a README.md whose `configs` name others.
    """
    files: dict[Path, Path] = {}
    for path in map(Path, sources):
        if path.is_dir():
            read = _visible_files(path)
            if split is not None:
                read = _files_of_split(path, read, split)
        elif path.exists():
            check_name(path)
            read = [path]
        else:
            raise DataError(missing_file(path))
        for file in read:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def all_files(folder: Path) -> list[Path]:
    """Return all files below a folder, in the order of the parts of their paths.

    Links to folders are followed. A folder that is reached twice is read once, by a path without links if it has one.
    Pipes, sockets and devices are left out: a pipe that nobody writes into would never end.

    Raises:
        DataError: a folder cannot be read.
    """

    def refuse(error: OSError):
        raise DataError(f"{error.filename} cannot be read: {error.strerror}")

    files: list[Path] = []
    seen: set[str] = set()
    waiting = [str(folder)]
    for top in waiting:  # this list grows
        for place, folders, names in os.walk(top, onerror=refuse):
            if (real := os.path.realpath(place)) in seen:
                folders.clear()
                continue
            seen.add(real)
            paths = [Path(place, name) for name in names]
            files += [path for path in paths if path.is_file() or not path.exists()]  # a broken link is refused later
            waiting += [path for name in sorted(folders) if os.path.islink(path := os.path.join(place, name))]
    return sorted(files)


def may_be_on_hub(source: str | Path) -> bool:
    """Return whether a source may be the name of a data set on the Hub, `NAME` or `NAME:CONFIG`: there is no file or
    folder of this name, and it is not written like one."""
    name = str(source).partition(":")[0]
    is_name = re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", name, re.ASCII)
    return bool(is_name) and not Path(source).exists() and not is_file_name(name)


def missing_file(path: str | Path) -> str:
    """Return the sentence about a path that does not exist."""
    is_pattern = _PATTERN.search(Path(path).name)
    return f"{path} does not exist" + (
        "; a pattern is not expanded: name each file, or their folder" if is_pattern else ""
    )


def _visible_files(folder: Path) -> list[Path]:
    read: list[Path] = []
    others: list[Path] = []
    texts_about: list[Path] = []  # they may be data all the same
    for file in all_files(folder):
        if any(part.startswith(".") for part in file.relative_to(folder).parts) or file.name in _ABOUT_DATA_SETS:
            continue
        format_ = SUFFIXES.get(suffix_of(file))
        if format_ in (None, TEXT) and _ABOUT.fullmatch(file.name):
            texts_about += [file] * (format_ == TEXT)
            continue
        check_name(file)
        is_read = suffix_of(file) in SUFFIXES or not suffix_of(file)  # without a suffix, it is text or JSON Lines
        (read if is_read else others).append(file)
    if not read:
        raise DataError(f"{folder} has no file to read: {READABLE}")
    for description, skipped in ("of other formats", others), ("about the data, by their names", texts_about):
        if skipped:
            report_once(f"{folder}: skipped {len(skipped):,} files {description}, such as {skipped[0]}")
    return read


def _files_of_split(folder: Path, files: list[Path], split: str) -> list[Path]:
    splits = {file: _split_of(file, folder) for file in files}
    if any(splits.values()):
        if others := [str(file) for file, name in splits.items() if name is None]:
            raise DataError(
                f"{folder} has files of splits, and files without a split: {', '.join(others)}. Name the files, "
                "or move the others"
            )
        chosen = [file for file, name in splits.items() if name == split]
    else:
        chosen = files if split == "train" else []
    if not chosen:
        words = ", ".join(SPLITS.get(split, SPLITS))
        raise DataError(f"{folder} has no file of the split {split!r}: no name has a word such as {words}")
    formats = {SUFFIXES.get(suffix_of(file), "no suffix"): file for file in chosen}
    if len(formats) > 1:
        examples = ", ".join(f"{file} ({name})" for name, file in formats.items())
        raise DataError(f"{folder}: the files of a split have one format, but here are {examples}")
    _check_configs(folder, split, chosen)
    return chosen


def _split_of(file: Path, folder: Path) -> str | None:
    """Return the split in the name of a file. If it has none, return the split in the name of the nearest folder."""
    for part in reversed(file.relative_to(folder).parts):
        words = set(_SEPARATORS.split(part.lower()))
        splits = [split for split, names in SPLITS.items() if words & {*names}]
        if len(splits) > 1:
            raise DataError(f"{file}: its name says {' and '.join(splits)}: rename it, or name the files of each split")
        if splits:
            return splits[0]
    return None


def _check_configs(folder: Path, split: str, files: list[Path]) -> None:
    """Raise a DataError if the README.md of a data set names other files for a split, as the Hub allows."""
    readme = folder / "README.md"
    if not readme.is_file() or "\nconfigs:" not in readme.read_text(encoding="utf-8", errors="replace"):
        return
    import datasets

    try:
        listed = datasets.load_dataset_builder(str(folder)).config.data_files or {}
    except Exception as error:  # of many types, from YAML and from `datasets`
        raise DataError(f"{readme}: its configs cannot be read ({sentence_of(error)}): name the files") from None
    if {Path(file).resolve() for file in listed.get(split, [])} != {file.resolve() for file in files}:
        raise DataError(f"{readme} lists other files for the split {split!r} (configs) than their names say: name them")
