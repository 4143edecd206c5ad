"""Scores of entities, whole spans with a type, by seqeval."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console
from rich.table import Table
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities

from .predictions import write_predictions

Span = tuple[int, int, str]  # start, end (exclusive) and type
_FIGURES = ("precision", "recall", "f1-score")


def tag_spans(tags: Sequence[str]) -> list[Span]:
    """Return the entities of a list of BIO or BIOES tags, as conlleval and transformers' pipeline read them: an `I-`
    begins an entity too, unless it continues one of its type.

    >>> tag_spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'LOC')]
    """
    return [(start, last + 1, kind) for kind, start, last in get_entities([*tags])]


@dataclass(frozen=True)
class SpanPredictions:
    """Entities of labelled texts, and those that a model finds.

    labels, predicted: the spans of each text, (start, end (exclusive), type) in characters; of tags, `tag_spans` makes
        spans in tokens. An entity counts as found if a predicted span has its start, its end and its type.

    >>> SpanPredictions([{(0, 2, "PER")}, {(4, 6, "LOC")}], [{(0, 2, "PER")}, {(4, 7, "LOC")}]).f1
    0.5
    """

    labels: Sequence[Collection[Span]]
    predicted: Sequence[Collection[Span]]

    @cached_property
    def report(self) -> dict[str, dict[str, float]]:
        """Precision, recall, f1-score and support of each type, of "micro avg" and of "macro avg"."""
        # A list of tags per text, with a tag for each different span: so spans may also overlap.
        places = [sorted({*known} | {*found}) for known, found in zip(self.labels, self.predicted, strict=True)]
        tags = [
            [[f"B-{span[2]}" if span in spans else "O" for span in at] for at, spans in zip(places, side, strict=True)]
            for side in (self.labels, self.predicted)
        ]
        if not any(places):
            return {f"{name} avg": dict.fromkeys((*_FIGURES, "support"), 0.0) for name in ("micro", "macro")}
        report = classification_report(*tags, output_dict=True, zero_division=0)
        del report["weighted avg"]
        return {name: {figure: float(value) for figure, value in row.items()} for name, row in report.items()}

    @property
    def f1(self) -> float:
        """F1 of the entities of all types (micro)."""
        return self.report["micro avg"]["f1-score"]

    @property
    def macro_f1(self) -> float:
        """Mean of the types' F1."""
        return self.report["macro avg"]["f1-score"]

    def warn_of_none(self, model: str, advice: str) -> None:
        """Print a warning on stderr if no entity is found."""
        if self.report["micro avg"]["recall"] == 0:
            known = sum(map(len, self.labels))
            print(f"warning: {model} finds none of the {known:,} entities: {advice}", file=sys.stderr)

    def table(self) -> Table:
        """Return a table with precision, recall, F1 and the number of entities of each type, and of all (micro and
        macro), to be printed without markup."""
        table = Table("type")
        for title in ("precision", "recall", "F1", "entities"):
            table.add_column(title, justify="right")
        for name, row in self.report.items():
            if name == "micro avg":
                table.add_section()
            figures = (f"{row[figure]:.3f}" for figure in _FIGURES)
            table.add_row(name.removesuffix(" avg"), *figures, f"{row['support']:,.0f}")
        return table

    def print_table(self) -> None:
        """Print the table."""
        Console(markup=False).print(self.table())

    def write(self, file: str | Path, texts: Sequence[str]) -> None:
        """Write a row per text, as `write_predictions`: `text`, `entities` and `predicted`. An entity has label, start,
        end and text."""
        sides = {
            name: [[_entity(text, span) for span in sorted(spans)] for text, spans in zip(texts, side, strict=True)]
            for name, side in (("entities", self.labels), ("predicted", self.predicted))
        }
        write_predictions(file, {"text": texts, **sides})


def _entity(text: str, span: Span) -> dict[str, object]:
    start, end, kind = span
    return {"label": kind, "start": start, "end": end, "text": text[start:end]}
