"""The results.json of a run, rewritten after each result, from which a stopped run resumes."""

import json
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TypeVar

from ...tokenization.whole_file import write_whole
from ..errors import TrainingError
from .device import on_main_process, processes
from .fingerprint import check_same, warn_of_unchecked
from .finite import json_safe

T = TypeVar("T")
FILE = "results.json"


class ResultsFile:
    """Settings and results so far. Call `read` first, and `write` before computing anything.

    Args:
        folder: folder of the run; created by `write`.
        settings: settings that must not change when a run resumes, as JSON values, with digests of data and weights (see
            `fingerprint.check_same`).
        earlier: converts the settings that an earlier version recorded to the current names.
        without_file: names of the files and folders of an earlier version that wrote no results.json.
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
        """Read the file and return the result of `parse`, or None if there is no file. The main process reads it for all.

        Raises a TrainingError if its settings differ, `parse` fails, or the folder holds other files.
        """
        return on_main_process(lambda: self._read(parse))

    def _read(self, parse: Callable[[dict], T]) -> T | None:
        if not self.path.exists():
            folder = self.path.parent
            there = (
                {entry.name for entry in folder.iterdir()} if folder.is_dir() else {""} if folder.exists() else set()
            )
            if any(name not in self.without_file for name in there):
                raise TrainingError(f"{folder} is not empty and has no {FILE}: name a new folder")
            if there:
                warn_of_unchecked(folder, self.settings)
            return None
        try:
            # Earlier versions wrote NaN.
            saved = json.loads(self.path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
            settings, parsed = self.earlier(dict(saved["settings"])), parse(saved)
        except (ValueError, KeyError, TypeError):
            raise TrainingError(f"{self.path} is damaged: name another folder") from None
        check_same(self.path, settings, self.settings)
        return parsed

    def write(self, **content: object) -> None:
        """Write settings and content atomically, in the main process. Numbers that are not finite become null."""
        if not processes().is_main_process:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = json_safe({"settings": self.settings, **content})
        text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(self.path.resolve(), text + "\n")
