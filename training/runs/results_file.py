"""The results.json of a folder, which grows with each result, so that a run that was stopped is resumed."""

import json
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TypeVar

from ...tokenization.whole_file import write_whole
from ..errors import TrainingError
from .device import by_main_process, processes
from .fingerprint import check_same, warn_of_unchecked
from .finite import as_json

T = TypeVar("T")
FILE = "results.json"


class ResultsFile:
    """Settings, and what came of them so far. `read` is called first, and `write` before anything is computed.

    Args:
        folder: of the run; made when something is written.
        settings: what must be the same for a run to be resumed, as JSON holds it, with digests of data and weights (see
            `fingerprint.check_same`).
        earlier: gives the settings that an earlier version has written as they are called now.
        without_file: names of what an earlier version, which wrote no file, has left in the folder.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: Mapping,
        earlier: Callable[[dict], dict] = dict,
        without_file: Container[str] = (),
    ):
        self.path = Path(folder) / FILE
        self.settings = json.loads(json.dumps(settings))
        self.earlier = earlier
        self.without_file = without_file

    def read(self, parse: Callable[[dict], T]) -> T | None:
        """What `parse` makes of the whole file, or None where there is none; the main process reads it for all.

        Raises a TrainingError where it has other settings, or `parse` does not find what it looks for, or where the folder
        holds something else.
        """
        return by_main_process(lambda: self._read(parse))

    def _read(self, parse: Callable[[dict], T]) -> T | None:
        if not self.path.exists():
            folder = self.path.parent
            there = (
                {entry.name for entry in folder.iterdir()} if folder.is_dir() else {""} if folder.exists() else set()
            )
            if any(name not in self.without_file for name in there):
                raise TrainingError(f"{folder} is not empty and holds no {FILE}: name a new folder")
            if there:
                warn_of_unchecked(folder, self.settings)
            return None
        try:
            # Earlier versions wrote NaN, which JSON does not have.
            saved = json.loads(self.path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
            settings, parsed = self.earlier(dict(saved["settings"])), parse(saved)
        except (ValueError, KeyError, TypeError):
            raise TrainingError(f"{self.path} is broken, and no results can be read: name another folder") from None
        check_same(self.path, settings, self.settings)
        return parsed

    def write(self, **content: object) -> None:
        """Write settings and content, whole; numbers that are not finite become null. Only the main process writes."""
        if not processes().is_main_process:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = as_json({"settings": self.settings, **content})
        text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(self.path.resolve(), text + "\n")
