"""Whose results a folder holds: what was begun there is written down, and compared when a command comes again.

What tells a run from another one are its settings, its data and the weights that it starts from; of data and weights the
digests are compared (see `content`), so that they may be moved and renamed.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...output.folder_lock import only_writer
from ..errors import TrainingError
from .device import by_main_process

_logger = logging.getLogger(__name__)
_DIGEST = re.compile(r"[0-9a-f]{64}")


@contextmanager
def only_run(folder: str | Path) -> Iterator[None]:
    """Keep other runs out of a folder while the block runs; the main process does so for all of this run.

    Raises a TrainingError where another process writes there, or where it is a file.
    """
    with ExitStack() as stack:

        def enter() -> None:
            try:
                stack.enter_context(only_writer(folder))
            except (BlockingIOError, FileExistsError) as error:
                raise TrainingError(str(error)) from None

        by_main_process(enter)
        yield


def check_same(place: str | Path, begun: Mapping, now: Mapping, hint: str = "") -> None:
    """Compare a run with the one that was begun in its place.

    What `begun` does not say, or says by name where `now` has a digest, was written by an earlier version: a warning says
    that it could not be checked. What `now` does not have is no longer a setting.

    Args:
        place: the folder, or the file with the results.
        begun: what was written down.
        now: what the command says: name -> value, as JSON holds it.
        hint: what else can be done.

    Raises a TrainingError that names all that differs.
    """
    different, unchecked = [], []
    for name, value in now.items():
        if name not in begun or (_has_digest(value) and begun[name] is not None and not _has_digest(begun[name])):
            unchecked.append(name)
        elif begun[name] != value:
            different.append(name)
    if different:
        refuse(place, different, hint)
    if unchecked:
        warn_of_unchecked(place, unchecked)


def check_rows(
    place: str | Path,
    rows: Sequence[dict],
    kind: str,
    key: str,
    digests: Mapping[str, str],
    called: str,
    hint: str = "",
) -> None:
    """Compare what rows of results were made of with what is now called the same.

    Rows of an earlier version, which have no digest, are given one, with a warning.

    Args:
        place: the file with the results.
        rows: of a grid.
        kind: the key of their model's or data's name.
        key: that of its digest.
        digests: name -> digest.
        called: how it is said of a name, as "model {}".
        hint: what else can be done.

    Raises a TrainingError that names what stands for something else.
    """
    named = [row for row in rows if row[kind] in digests]
    different = {row[kind] for row in named if row.get(key, digests[row[kind]]) != digests[row[kind]]}
    if different:
        refuse(place, map(called.format, sorted(different)), hint)
    unchecked = {row[kind] for row in named if key not in row}
    for row in named:
        row[key] = digests[row[kind]]
    if unchecked:
        warn_of_unchecked(place, map(called.format, sorted(unchecked)))


def refuse(place: str | Path, different: Iterable[str], hint: str = "") -> None:
    """Raise a TrainingError that names what differs from what was begun."""
    raise TrainingError(
        f"{place} holds results with other {_listed(different)}: name another folder for these{hint and f'; {hint}'}"
    )


def warn_of_unchecked(place: str | Path, names: Iterable[str]) -> None:
    """Say what could not be compared with what was begun, because an earlier version has not written it down."""
    _logger.warning(
        "%s was begun by an earlier version, so it could not be checked that %s are the same; the run is resumed, and they are "
        "written down now",
        place,
        _listed(names),
    )


def _has_digest(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_digest, value))
    return isinstance(value, str) and bool(_DIGEST.search(value))


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
