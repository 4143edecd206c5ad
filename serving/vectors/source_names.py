"""What sources are called in ids and in `run.json`: not by the folders in which they lie on somebody's machine."""

import os
from collections.abc import Sequence
from pathlib import Path


def source_names(sources: Sequence[str]) -> list[str]:
    """Return a name for each source, a file, a folder or a data set, that differs where the sources do.

    A relative path is its own name, without what leads out of the current folder. Of an absolute one the last part is the
    name, with as many before it as tell it from the others. The current folder's name is empty.

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
    """How many of the last parts of a path are its name at least."""
    if path.is_absolute():
        return 1
    parts = path.parts
    return parts[::-1].index("..") if ".." in parts else len(parts)


def file_names(files: Sequence[Path], sources: Sequence[str]) -> list[str]:
    """Return a name for each file that was found in the sources: that of its source, and its place in it."""
    names = dict(zip(map(Path, sources), source_names(sources), strict=True))
    found = []
    for file in files:
        source = next(place for place in (file, *file.parents) if place in names)
        inside = file.relative_to(source).as_posix() if file != source else ""
        found.append("/".join(part for part in (names[source], inside) if part))
    return found
