"""Files and data sets that are read in a stream, and their names in ids."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from .errors import DataError
from .files import find_files, may_be_on_hub
from .values import has_lone_surrogate


class Sources:
    """Files and data sets that are read in a stream.

    Args:
        sources: files and folders, as `find_files` finds them, and data sets on the Hub, `NAME` or `NAME:CONFIG`, whose
            split "train" is read.

    Raises:
        DataError: a source is missing, or two files have one name in ids.
    """

    def __init__(self, sources: Sequence[str]):
        self.sources = tuple(sources)

    @property
    def pipes(self) -> list[Path]:
        """Sources that can be read only once."""
        return [place for place, _ in self.opened if is_pipe(place)]

    def size(self) -> float:
        """Return the size of all sources in bytes."""
        return sum(place.stat().st_size if isinstance(place, Path) else place.data.nbytes for place, _ in self.opened)

    @cached_property
    def opened(self) -> list[tuple]:
        """Files and data sets, with their names in ids."""
        opened: list[tuple] = []
        files: dict[str, Path] = {}  # by their names in ids
        seen: set[Path] = set()
        for source, short in zip(self.sources, source_names(self.sources), strict=True):
            if may_be_on_hub(source):
                from .data_sets import load_from_hub

                opened.append((load_from_hub(source), short))
                continue
            for path in find_files([source]):
                if path.resolve() in seen:
                    continue
                name = (Path(short) / path.relative_to(source)).as_posix()
                if name in files:
                    raise DataError(
                        f"{files[name]} and {path} would both be called {name} in ids: name a folder that has both"
                    )
                files[name] = path
                seen.add(path.resolve())
                opened.append((path, name))
        return opened


def is_pipe(place) -> bool:
    """Return whether a source can be read only once."""
    return isinstance(place, Path) and not place.is_file()


def checked_id(value: object, where: str) -> str:
    """Return an id as a string; raise DataError if it is neither a string nor an integer."""
    is_id = isinstance(value, (str, int)) and not isinstance(value, bool) and value != ""
    if not is_id or has_lone_surrogate(str(value)):
        raise DataError(f"{where}: {value!r}; expected a string in UTF-8, or an integer, as id")
    return str(value)


def source_names(sources: Sequence[str]) -> list[str]:
    """Return a name for each source, a file, a folder or a data set, without the folders of the user's machine.

    A relative path is its own name, and an absolute one its last part. That of the current folder is empty.

    >>> source_names(["laws/new.txt", "/home/me/texts/a.txt"])
    ['laws/new.txt', 'a.txt']
    """
    paths = map(Path, sources)
    return [path.name if path.is_absolute() or ".." in path.parts else "/".join(path.parts) for path in paths]
