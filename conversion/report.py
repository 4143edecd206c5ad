"""The result of a conversion, for people and for programs."""

from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from modeling_roformer.output.console import summary_table


@dataclass(frozen=True)
class ConversionReport:
    """The result of one conversion.

    `family` is the recognised family, and `sign` the evidence for it (None if the family was given); `written_as` names
    the result, if it is of another kind, and `architecture` its class. `extras` has the variables left out, by kind;
    `ignored_settings` the fields of the old configuration without a meaning in the new one; `verified` is true if every
    tensor was compared after reloading; `rows` are extra lines of the summary, and `warnings` its last. A `dry_run`
    wrote no `files`.
    """

    source: Path
    output: Path
    family: str
    sign: str | None
    written_as: str | None
    architecture: str
    word_level: bool
    vocab_size: int
    words: int
    layers: int
    parameters: int
    dtype: str
    variables: int
    extras: dict[str, list[str]]
    ignored_settings: list[str]
    rows: dict[str, str]
    warnings: list[str] = field(default_factory=list)
    dry_run: bool = False
    files: list[str] = field(default_factory=list)
    verified: bool = False
    seconds: float = 0.0

    def table(self) -> Table:
        """Return the summary as a rich table."""
        unit = f"word-level: {self.words:,} words among {self.vocab_size:,} entries"
        if not self.word_level:
            unit = f"character-level: {self.vocab_size:,} entries, no words"
        rows = {
            "source": str(self.source),
            "output": f"{self.output} (not written: dry run)" if self.dry_run else str(self.output),
            "family": f"{self.family} ({self.sign})" if self.sign else self.family,
            "written as": self.written_as,
            "class": self.architecture,
            **self.rows,
            "vocabulary": unit,
            "layers": str(self.layers),
            "parameters": f"{self.parameters:,}",
            "dtype": self.dtype,
            "variables used": str(self.variables),
        }
        for kind, names in self.extras.items():
            rows[f"left out: {kind}"] = _shortened(names)
        if self.ignored_settings:
            rows["settings ignored"] = ", ".join(self.ignored_settings)
        if not self.dry_run:
            rows["files"] = ", ".join(self.files)
            rows["verified"] = "every tensor, after reloading" if self.verified else "no (use --verify)"
        rows["seconds"] = f"{self.seconds:.1f}"
        rows["WARNING"] = "\n".join(self.warnings) or None
        return summary_table(rows)


def _shortened(names: list[str], shown: int = 4) -> str:
    more = f", … ({len(names)} in all)" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
