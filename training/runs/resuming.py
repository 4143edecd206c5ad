"""Settings and results of a run, recorded in its folder. The same command finds them again and resumes.

Two runs are the same if they have the same settings, data and initial weights. Data and weights are compared by digests
(see `digests`), so they may be moved and renamed.
"""

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from ...files.atomic_file import leftovers, remove_leftovers, write_whole
from ...files.lock import only_writer
from ..errors import TrainingError
from .device import on_main_process, processes
from .finite import json_safe

T = TypeVar("T")
FILE = "results.json"
_logger = logging.getLogger(__name__)


@contextmanager
def run_lock(folder: str | Path) -> Iterator[None]:
    """Lock a folder in the main process while the block runs. Raise a TrainingError if another run holds the lock."""
    with ExitStack() as stack:
        on_main_process(lambda: stack.enter_context(only_writer(folder, TrainingError)))
        yield


def check_same(place: str | Path, begun: Mapping, now: Mapping, hint: str = "") -> None:
    """Compare the settings of this command (`now`, as JSON values) with those recorded at `place` (`begun`).

    Earlier versions recorded fewer settings. Others cannot be compared: log a warning. Recorded settings that no longer
    exist are ignored.

    Raises a TrainingError that names all different settings, and `hint`, another solution.
    """
    different = [name for name, value in now.items() if begun.get(name, value) != value]
    report(place, different, [name for name in now if name not in begun], hint)


def check_rows(
    place: str | Path,
    rows: Sequence[dict],
    kind: str,
    key: str,
    digests: Mapping[str, str],
    called: str,
    hint: str = "",
) -> None:
    """Compare the digests in rows of results with those of the models or data that now have the same names (`digests`).

    `kind` and `key` are the keys of a name and of its digest in a row; `called` is the format of a name in messages,
    for example "model {}". Rows of earlier versions have no digest: add it, and log a warning.

    Raises a TrainingError that names all models or data that differ, and `hint`, another solution.
    """
    named = [row for row in rows if row[kind] in digests]
    different = {row[kind] for row in named if row.get(key, digests[row[kind]]) != digests[row[kind]]}
    unchecked = {row[kind] for row in named if key not in row}
    report(place, map(called.format, sorted(different)), map(called.format, sorted(unchecked)), hint)
    for row in named:
        row[key] = digests[row[kind]]


def report(place: str | Path, different: Iterable[str], unchecked: Iterable[str], hint: str = "") -> None:
    """Raise a TrainingError that names the settings that differ, or log those that an earlier version did not
    record."""
    if names := _listed(different):
        hint = hint and f", {hint}"
        raise TrainingError(f"{place} belongs to another run, with different {names}: use another output folder{hint}")
    if names := _listed(unchecked):
        _logger.warning(
            "%s was written by an earlier version without %s: these are not compared, and are recorded now",
            place,
            names,
        )


def _listed(names: Iterable[str]) -> str:
    *most, last = [*names] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def recorded_setting(folder: str | Path, name: str) -> float | None:
    """Return a setting of the run that a folder has, a number above 0, or None.

    It replaces a default that depends on model, data or version.
    """
    try:
        settings = json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))["settings"]
        value = settings.get(name)
        return value if type(value) in (int, float) and 0 < value < math.inf else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # ResultsFile raises an error for a damaged file


def refuse_constant(text: str) -> None:
    """Raise a ValueError: NaN and infinities, which json reads, are no results."""
    raise ValueError(f"{text} is no finite number")


def require_values(texts: Iterable[object] = (), numbers: Iterable[object] = ()) -> None:
    """Raise a ValueError if, in a results.json, a text is no string, or a number is not finite or below 0."""
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a text that is none")
    if not all(type(number) in (int, float) and 0 <= number < math.inf for number in numbers):
        raise ValueError("a number that is none")


class ResultsFile:
    """Settings and results so far. Call `read` first, and `write` before computing anything.

    Args:
        script: name of the script, without which another script's results with the same settings would be taken for its
            own.
        folder: folder of the run; created by `write`.
        settings: settings that must not change when a run resumes, as JSON values, with digests of data and weights
            (see `check_same`).
    """

    def __init__(self, script: str, folder: str | Path, settings: Mapping):
        self.script, self.path, self.settings = script, Path(folder) / FILE, json.loads(json.dumps(settings))

    def read(self, parse: Callable[[dict], T]) -> T | None:
        """Read the file in the main process and return the result of `parse`, or None if there is no file.

        Raises a TrainingError if the settings differ, the file is of another script, a number in it is not finite,
        `parse` fails, or the folder has other files.
        """
        return on_main_process(lambda: self._read(parse))

    def _read(self, parse: Callable[[dict], T]) -> T | None:
        if not self.path.exists():
            folder = self.path.parent
            is_used = len([*folder.iterdir()]) > len(leftovers(self.path)) if folder.is_dir() else folder.exists()
            if is_used:
                raise TrainingError(f"{folder} is not empty and has no {FILE}: name a new folder")
            return None
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"), parse_constant=refuse_constant)
            settings, script = dict(saved["settings"]), saved.get("script", self.script)
            if script == self.script:
                parsed = parse(saved)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise TrainingError(f"{self.path} is damaged, or of another script: name another folder") from None
        if script != self.script:
            raise TrainingError(f"{self.path} is of {script}: name another folder")
        check_same(self.path, settings, self.settings)
        return parsed

    def write(self, **content: object) -> None:
        """Write settings and content atomically, in the main process. Numbers that are not finite become null."""
        if not processes().is_main_process:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = json_safe({"script": self.script, "settings": self.settings, **content})
        text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
        remove_leftovers(self.path)  # this process has the lock of the folder
        write_whole(self.path.resolve(), text + "\n")
