"""Names of sources in ids and settings of vectors, without the folders of the user's machine."""

import os
from collections.abc import Sequence
from pathlib import Path


def source_names(sources: Sequence[str]) -> list[str]:
    """Return a distinct name for each source: a file, a folder or a data set.

    A relative path is its own name, without leading `..`. An absolute path is named by its last part, and as many parts
    before it as distinguish it from the others. The name of the current folder is empty.

    >>> source_names(["laws/new.txt", "/home/me/texts/a.txt", "/home/me/more/a.txt"])
    ['laws/new.txt', 'texts/a.txt', 'more/a.txt']
    """
    whole = [Path(os.path.abspath(source)).parts for source in sources]
    used = [_typed(Path(source)) for source in sources]
    while True:
        names = ["/".join(parts[len(parts) - n :]) for parts, n in zip(whole, used, strict=True)]
        meant: dict[str, set[tuple[str, ...]]] = {}
        for name, parts in zip(names, whole, strict=True):
            meant.setdefault(name, set()).add(parts)
        unclear = [i for i, name in enumerate(names) if len(meant[name]) > 1 and used[i] < len(whole[i])]
        if not unclear:
            return names
        for i in unclear:
            used[i] += 1


def _typed(path: Path) -> int:
    """Return the least number of last parts of a path that name it."""
    if path.is_absolute():
        return 1
    parts = path.parts
    return parts[::-1].index("..") if ".." in parts else len(parts)


def file_names(files: Sequence[Path], sources: Sequence[str]) -> list[str]:
    """Return a name for each file found in the sources: the name of its source, and its path in it."""
    names = dict(zip(map(Path, sources), source_names(sources), strict=True))
    found = []
    for file in files:
        source = next(place for place in (file, *file.parents) if place in names)
        inside = file.relative_to(source).as_posix() if file != source else ""
        found.append("/".join(part for part in (names[source], inside) if part))
    return found
