"""The results.json of a folder, which grows with each result, so that a run that was stopped goes on."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ..tokenization.whole_file import write_whole
from .errors import TrainingError

T = TypeVar("T")
FILE = "results.json"


class ResultsFile:
    """Settings, and what came of them so far.

    Args:
        folder: of the run; made when something is written.
        settings: what must be the same for a run to go on, as JSON holds it.

    Raises a TrainingError where the folder holds something else.
    """

    def __init__(self, folder: str | Path, settings: Mapping):
        self.path = Path(folder) / FILE
        self.settings = json.loads(json.dumps(settings))
        folder = self.path.parent
        if not self.path.exists() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TrainingError(f"{folder} is not empty and holds no {FILE}: name a new folder")

    def read(self, parse: Callable[[dict], T]) -> T | None:
        """What `parse` makes of the whole file, or None where there is none.

        Raises a TrainingError where it has other settings, or `parse` does not find what it looks for.
        """
        if not self.path.exists():
            return None
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"))
            settings, parsed = dict(saved["settings"]), parse(saved)
        except (ValueError, KeyError, TypeError):
            raise TrainingError(f"{self.path} is broken, and no results can be read: name another folder") from None
        others = [name for name in {**settings, **self.settings} if settings.get(name) != self.settings.get(name)]
        if others:
            raise TrainingError(f"{self.path} holds results with other {' and '.join(others)}: name another folder")
        return parsed

    def write(self, **content: object) -> None:
        """Write settings and content, whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"settings": self.settings, **content}, indent=1, ensure_ascii=False)
        write_whole(self.path.resolve(), text + "\n")
