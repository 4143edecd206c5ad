"""Convert every checkpoint in a folder, even if some of them fail."""

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from modeling_roformer.files.atomic_folder import is_saved_model
from modeling_roformer.output.console import sentence_of

from .converter import convert
from .errors import CheckpointError
from .folder.legacy_folder import CONFIGS, INDEX, VOCABULARY
from .report import ConversionReport

ZIP = ".zip"


@dataclass(frozen=True)
class Outcome:
    """The outcome for one checkpoint: a report, or a sentence on why there is none."""

    name: str
    report: ConversionReport | None = None
    skipped: str | None = None
    failure: str | None = None

    @property
    def result(self) -> str:
        """The lines of the table."""
        report = self.report
        if report is None:
            return self.skipped or f"failed: {self.failure}"
        sign = f"\n{report.sign}" if report.sign else ""
        warnings = "".join(f"\nWARNING: {warning}" for warning in report.warnings)
        return f"{report.family}, {report.parameters:,} parameters, {report.seconds:.1f} s{sign}{warnings}"


@dataclass(frozen=True)
class Summary:
    """The outcomes for all checkpoints."""

    outcomes: list[Outcome]

    @property
    def warnings(self) -> list[str]:
        """The warnings of all conversions."""
        return [warning for outcome in self.outcomes if outcome.report for warning in outcome.report.warnings]

    def table(self) -> Table:
        """Return a table with the outcome for each checkpoint."""
        table = Table("checkpoint", "result")
        for outcome in self.outcomes:
            table.add_row(*(Text(text, overflow="fold") for text in (outcome.name, outcome.result)))
        return table

    def raise_for_failures(self) -> None:
        """Raise CheckpointError if any checkpoint failed."""
        failed = [outcome.name for outcome in self.outcomes if outcome.failure]
        if failed:
            raise CheckpointError(f"{len(failed)} of {len(self.outcomes)} checkpoints failed: {', '.join(failed)}")


def convert_all(parent: str | Path, output_dir: str | Path, *, force: bool = False, **options) -> Summary:
    """Convert every checkpoint found by `find_checkpoints` into a folder of the same name in `output_dir`.

    Checkpoints that are already converted are skipped, unless `force` is set. `options` are those of `convert`.

    Raises:
        CheckpointError: there is nothing to convert; errors of single checkpoints are in the summary.

    Example:
        >>> convert_all("downloads", "converted").raise_for_failures()
    """
    output_dir = Path(output_dir)
    found = find_checkpoints(parent, output_dir)
    if not found:
        raise CheckpointError(f"{parent} contains no checkpoint: no folder with a configuration, and no {ZIP}")
    return Summary([_convert_one(name, paths, output_dir / name, force, options) for name, paths in found.items()])


def find_checkpoints(parent: str | Path, output_dir: Path) -> dict[str, list[Path]]:
    """Return name of each checkpoint in `parent`, without .zip -> the folders and archives of this name.

    A folder is a checkpoint if it has a configuration, a vocabulary or the index of a TensorFlow checkpoint. Since some
    archives unpack to a folder of folders, folders one level deeper are checked too. Hidden folders and `output_dir`
    are skipped.
    """
    parent = Path(parent)
    found: dict[str, list[Path]] = {}
    for path in sorted(parent.iterdir()):
        if path.is_dir() and _is_searched(path, output_dir):
            inner = [path] if _is_checkpoint(path) else sorted(filter(Path.is_dir, path.iterdir()))
            for folder in inner:
                if _is_checkpoint(folder) and _is_searched(folder, output_dir):
                    found.setdefault(folder.name, []).append(folder)
        elif path.is_file() and path.suffix.lower() == ZIP:
            found.setdefault(path.name[: -len(ZIP)], []).append(path)
    return found


def _is_searched(folder: Path, output_dir: Path) -> bool:
    return not folder.name.startswith(".") and folder.resolve() != output_dir.resolve()


def _is_checkpoint(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (*CONFIGS, VOCABULARY)) or any(folder.glob(f"*{INDEX}"))


def _convert_one(name: str, paths: list[Path], output: Path, force: bool, options: dict) -> Outcome:
    if not force and is_saved_model(output):
        return Outcome(name, skipped="already converted")
    folders = [path for path in paths if path.is_dir()]
    if len(folders or paths) > 1:
        return Outcome(name, failure=f"several checkpoints have this name: {', '.join(map(str, folders or paths))}")
    # An archive next to the folder that it was unpacked to is the same checkpoint.
    path = (folders or paths)[0]
    try:
        return Outcome(name, report=convert(path, output, force=force, **options))
    except Exception as error:  # an unexpected error must not stop the others
        return Outcome(name, failure=sentence_of(error))
