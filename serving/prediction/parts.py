"""Finished parts of a prediction, in a hidden folder beside the output, by which a stopped command resumes.

Each part is a file of JSON Lines. `run.json` has the settings, and for each part the hash of its rows and of its file.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from modeling_roformer.files import write_whole
from modeling_roformer.files.reading import read_json

from ..errors import ServingError
from .rows import Part

_RUN = "run.json"


class PartsFolder:
    """The folder of the parts of an output file. It need not exist yet."""

    def __init__(self, output: Path):
        self.path = output.with_name(f".{output.name[:200]}.parts")
        self.settings: dict = {}
        self.records: dict[str, dict] = {}

    def begin(self, settings: dict, force: bool) -> None:
        """Take over the parts of a stopped command with the same settings.

        Raises:
            ServingError: it had other settings; with `force` its parts are removed.
        """
        try:
            stored = read_json(self.path / _RUN, default={})
        except ValueError:  # damaged
            stored = {}
        before = stored.get("settings", settings)
        if before != settings and not force:
            names = ", ".join(name.replace("_", "-") for name in settings if before.get(name) != settings[name])
            raise ServingError(
                f"{self.path} has the parts of a stopped command with other settings ({names}): run that command "
                "again, or start anew with --force"
            )
        self.settings, self.records = settings, stored.get("parts", {}) if before == settings else {}

    def has(self, part: Part) -> bool:
        """Return whether a part is stored, undamaged and of the same rows."""
        record = self.records.get(part.name)
        if record is None or record["rows"] != part.digest:
            return False
        path = self.path / part.name
        return path.is_file() and _digest(path.read_bytes()) == record["file"]

    def write(self, part: Part, lines: bytes, counts: dict[str, int]) -> None:
        """Store a part with its counts."""
        write_whole(self.path / part.name, lines)
        self.records[part.name] = {"rows": part.digest, "file": _digest(lines), **counts}
        write_whole(self.path / _RUN, json.dumps({"settings": self.settings, "parts": self.records}).encode())

    def keep_only(self, names: set[str]) -> None:
        """Forget the parts of other names."""
        self.records = {name: record for name, record in sorted(self.records.items()) if name in names}

    def files(self) -> list[Path]:
        """Return the files of the parts in the order of the input."""
        return [self.path / name for name in sorted(self.records)]

    def rows(self, path: Path) -> list[dict]:
        """Return the rows of a part."""
        return [json.loads(line) for line in path.read_bytes().splitlines()]

    def all_rows(self) -> Iterator[dict]:
        """Yield the rows of all parts, with those of one part in memory."""
        for path in self.files():
            yield from self.rows(path)

    def remove(self) -> None:
        """Remove the files of this folder, and the folder if nothing else is in it."""
        for path in [*self.path.glob("[0-9]*.jsonl"), *self.path.glob(".*.unfinished"), self.path / _RUN]:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it is not empty
            self.path.rmdir()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
