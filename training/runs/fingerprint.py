"""Identity of a run: its settings are recorded in its folder and compared when the command is given again.

Two runs are the same if they have the same settings, data and initial weights. Data and weights are compared by digests (see
`digests`), so they may be moved and renamed.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...output.folder_lock import only_writer
from ..errors import TrainingError
from .device import on_main_process

_logger = logging.getLogger(__name__)
_DIGEST = re.compile(r"[0-9a-f]{64}")


@contextmanager
def run_lock(folder: str | Path) -> Iterator[None]:
    """Lock a folder against other runs while the block runs. The main process holds the lock for all processes.

    Raises a TrainingError if another run holds the lock, or if `folder` is a file.
    """
    with ExitStack() as stack:

        def enter() -> None:
            try:
                stack.enter_context(only_writer(folder))
            except (BlockingIOError, FileExistsError) as error:
                raise TrainingError(str(error)) from None

        on_main_process(enter)
        yield


def check_same(place: str | Path, begun: Mapping, now: Mapping, hint: str = "") -> None:
    """Compare the settings of a run with those recorded in its folder.

    Earlier versions recorded fewer settings, and names in place of some digests. These cannot be compared: log a warning.
    Recorded settings that no longer exist are ignored.

    Args:
        place: the folder, or the file with the results.
        begun: the recorded settings.
        now: the settings of this command: name -> value, as JSON values.
        hint: another solution, for the error message.

    Raises a TrainingError that names all different settings.
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
    """Compare the digests in rows of results with the digests of the models or data that now have the same names.

    Rows of earlier versions have no digest: add it, and log a warning.

    Args:
        place: the file with the results.
        rows: the rows; they may be changed.
        kind: the key of the name of a model or of data.
        key: the key of its digest.
        digests: name -> digest.
        called: format of a name in messages, for example "model {}".
        hint: another solution, for the error message.

    Raises a TrainingError that names all models or data that differ.
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
    """Raise a TrainingError that names the settings that differ."""
    raise TrainingError(
        f"{place} belongs to another run, with different {_listed(different)}: use another output folder{hint and f', {hint}'}"
    )


def warn_of_unchecked(place: str | Path, names: Iterable[str]) -> None:
    """Log which settings an earlier version did not record."""
    _logger.warning(
        "%s was written by an earlier version that did not record %s; the run is resumed without comparing them, and they "
        "are recorded now",
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
