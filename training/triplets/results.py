"""Results of the rows of Table 5: results.json, which grows with each run, and the tables."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from rich.table import Table

from ..comparing.paired_bootstrap import Difference, paired_bootstrap
from ..metrics import metric
from ..runs.resuming import ResultsFile, report
from ..runs.spread import number_of_seeds
from .baselines import TEXT_BLIND
from .reading import LABELS, Triplet


@dataclass(frozen=True)
class Comparison:
    """Difference between the accuracies of two rows on the same triplets, over the seeds that both have.

    seeds: their number. Earlier versions did not record it.
    """

    row: str
    against: str
    difference: Difference
    seeds: int


@dataclass
class Run:
    """Results of one row with one seed: validation accuracy, test accuracy, and ties in the test.

    answers: file and line of each test triplet -> B, C or neither.
    results: 1, 0, or 0.5 for a tie, for each test triplet.
    log: Trainer's log, if there was training.
    weights: digest of the model; empty if that was not kept, None if an earlier version recorded none.
    """

    seed: int
    validation: float
    accuracy: float
    ties: int
    answers: dict[str, str]
    results: list[float]
    log: list[dict] = field(default_factory=list)
    weights: str | None = None

    @classmethod
    def from_decisions(
        cls, seed: int, validation: float, test: Sequence[Triplet], decisions: np.ndarray, log=()
    ) -> "Run":
        """Return the results from decisions on the test triplets (see `baselines`)."""
        labels = np.array([triplet.label for triplet in test])
        scores = metric("triplet_accuracy").compute(predictions=decisions, references=labels)
        results = np.where(decisions == -1, 0.5, decisions == labels).tolist()
        names = [*LABELS, "neither"]
        places = [Path(triplet.place).name for triplet in test]  # without the folders of this machine
        answers = {place: names[decision] for place, decision in zip(places, decisions, strict=True)}
        return cls(seed, validation, scores["accuracy"], scores["ties"], answers, results, list(log), "")


@dataclass
class Row:
    """Row of the table: a model at a length, or a baseline.

    model, length: None for a baseline.
    weights: digests of the model's weight files, and one of config and tokenizer.
    runs: one per seed, in training order.
    note: the reason why there are no runs.
    failed: seed -> the reason why its run failed.
    """

    name: str
    model: str | None = None
    length: int | None = None
    weights: str = ""
    runs: list[Run] = field(default_factory=list)
    note: str = ""
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> Run:
        """The first run with the highest validation accuracy."""
        return max(self.runs, key=lambda run: run.validation)

    def is_best(self, run: Run) -> bool:
        """Return whether a run is the best one if it is added, or replaces the one with its seed."""
        return Row("", runs=self.with_run(run)).best is run

    def with_run(self, run: Run) -> list[Run]:
        """Return the runs with a further one, in place of the one with its seed."""
        if self.run(run.seed) is None:
            return [*self.runs, run]
        return [run if other.seed == run.seed else other for other in self.runs]

    def exceeds_positions(self, longest: int | None, length: int) -> bool:
        """Return whether a length exceeds the positions of a model, and set `note` accordingly."""
        self.note = f"its positions end at {longest:,}" if longest is not None and length > longest else ""
        return bool(self.note)

    def is_done(self, seed: int) -> bool:
        """Return whether the run of a seed has a result or has failed."""
        return self.run(seed) is not None or str(seed) in self.failed

    def run(self, seed: int) -> Run | None:
        return next((run for run in self.runs if run.seed == seed), None)

    def summary(self) -> dict[str, dict]:
        """Return mean and standard deviation of both accuracies over the seeds; the deviation of one seed is None."""
        values = {"validation": [run.validation for run in self.runs], "test": [run.accuracy for run in self.runs]}
        return {
            name: {"mean": float(np.mean(of)), "deviation": float(np.std(of, ddof=1)) if len(of) > 1 else None}
            for name, of in values.items()
            if of
        }

    def difference_from(self, other: "Row") -> Difference:
        """Return the difference between the accuracies of this row and another, over the seeds that both have."""
        pairs = [(run, other.run(run.seed)) for run in self.runs if other.run(run.seed)]
        return paired_bootstrap(
            [result for run, _ in pairs for result in run.results],
            [result for _, run in pairs for result in run.results],
            # Identified by their lines: the file may have been moved between two seeds.
            [place.rpartition(" ")[2] for run, _ in pairs for place in run.answers],
        )


class Results:
    """Rows of one comparison, in the results.json of a folder (see `ResultsFile`), from which it resumes."""

    def __init__(self, folder: str | Path, settings: dict):
        self.file = ResultsFile("finetune_triplet.py", folder, settings)
        self._compared: list = []
        self.rows: dict[str, Row] = self.file.read(self._read) or {}

    def _read(self, saved: dict) -> dict[str, Row]:
        self._compared = [*saved["comparisons"]]
        return _rows(saved)

    def row(self, name: str, model: str | None = None, length: int | None = None, weights: str = "") -> Row:
        """Return the row with a name, new or recorded. Raise a TrainingError if the recorded weights differ."""
        row = self.rows.setdefault(name, Row(name, model, length, weights))
        different = [] if row.weights == weights else [f"weights of {name}"]
        report(self.file.path, different, [], "or rename or link the model's folder")
        return row

    def name_of(self, weights: str, name: str) -> str:
        """Return the recorded name of a model, if its folder was renamed, or else `name`."""
        return next((row.model for row in self.rows.values() if row.model and row.weights == weights), name)

    def add(self, row: Row, run: Run) -> None:
        """Add a run to a row, or replace the run with the same seed, also if that failed."""
        row.failed.pop(str(run.seed), None)
        row.runs = row.with_run(run)
        self.write()

    def add_failed(self, row: Row, seed: int, why: str) -> None:
        """Record why a run failed. It is not repeated."""
        row.failed[str(seed)] = why
        self.write()

    def write(self, compared: Sequence[Comparison] | None = None) -> None:
        """Write the rows, and comparisons in place of those of before, which are kept until then."""
        if compared is not None:
            self._compared = [asdict(comparison) for comparison in compared]
        self.file.write(
            summary={row.name: row.summary() for row in self.rows.values() if row.runs},
            comparisons=self._compared,
            rows=[asdict(row) for row in self.rows.values()],
        )


def _rows(saved: dict) -> dict[str, Row]:
    """Return the rows of a results.json by name. Raise a ValueError, TypeError or KeyError if one of them is
    misshapen."""
    rows = {row["name"]: Row(**{**row, "runs": [Run(**run) for run in row["runs"]]}) for row in saved["rows"]}
    if len(rows) < len(saved["rows"]):
        raise ValueError("two rows of one name")
    for row in rows.values():
        texts = (row.name, row.weights, row.note, *row.failed.values())
        if not all(isinstance(text, str) for text in texts) or not all(seed.isdecimal() for seed in row.failed):
            raise ValueError("a row whose names are none")
        if len({run.seed for run in row.runs}) < len(row.runs):
            raise ValueError("two runs of one seed")
        for run in row.runs:
            counts = (run.seed, run.ties)
            shares = (run.validation, run.accuracy, *run.results)
            if not isinstance(run.weights, str | None):
                raise ValueError("a digest that is none")
            if not all(isinstance(count, int) for count in counts) or not all(0 <= share <= 1 for share in shares):
                raise ValueError("a run whose numbers are none")
            if not run.results or len(run.results) != len(dict(run.answers)):
                raise ValueError("a run without a result for each answer")
            if abs(run.accuracy - np.mean(run.results)) > 1e-9 or run.ties != run.results.count(0.5):
                raise ValueError("an accuracy that is not that of its results")
        if {str(run.seed) for run in row.runs} & set(row.failed):
            raise ValueError("a seed that has failed and has results")
    require_same_cases(rows.values())
    return rows


def require_same_cases(rows: Iterable[Row]) -> None:
    """Raise a ValueError if runs of one seed have not answered the same test triplets, by the lines of their file."""
    cases: dict[int, set[str]] = {}
    for run in (run for row in rows for run in row.runs):
        lines = {place.rpartition(" ")[2] for place in run.answers}
        if cases.setdefault(run.seed, lines) != lines:
            raise ValueError(f"runs of seed {run.seed} with other test triplets")


def percent(values: Sequence[float]) -> str:
    """Format the mean in percent, and the standard deviation of several values.

    >>> percent([0.5, 0.6])
    '55.0 ± 7.1'
    """
    mean = f"{100 * np.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * np.std(values, ddof=1):.1f}"


def accuracy_table(rows: Sequence[Row]) -> Table:
    """Return Table 5 of the paper: accuracy on validation and test, means and standard deviations over the seeds."""
    table = Table("accuracy, %")
    for name in ("seeds", "validation", "test", "decided"):
        table.add_column(name, justify="right")
    for row in rows:
        if row.note:
            table.add_row(row.name, "–", "–", "–", row.note)
            continue
        seeds = number_of_seeds(len(row.runs), len(row.failed))
        if not row.runs:
            table.add_row(row.name, seeds, "failed", "failed")
            continue
        ties, asked = np.mean([run.ties for run in row.runs]), np.mean([len(run.results) for run in row.runs])
        decided = f"{asked - ties:.4g} of {asked:.4g}" if ties else "all"
        validation, test = ([getattr(run, name) for run in row.runs] for name in ("validation", "accuracy"))
        table.add_row(row.name, seeds, percent(validation), percent(test), decided)
    return table


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Compare each row with the text-blind one, models at the same length, and lengths of the same model."""
    found = []
    for one, other in combinations(sorted(rows, key=lambda row: row.name != TEXT_BLIND), 2):
        alike = one.model and other.model and (one.model == other.model or one.length == other.length)
        if (one.name == TEXT_BLIND or alike) and any(one.run(run.seed) for run in other.runs):
            shared = sum(one.run(run.seed) is not None for run in other.runs)
            found.append(Comparison(other.name, one.name, other.difference_from(one), shared))
    return found


def comparison_table(compared: Sequence[Comparison]) -> Table:
    """Return a table of paired bootstraps (see `paired_bootstrap`)."""
    table = Table()
    for name in ("paired bootstrap, points of accuracy", "against", "seeds", "difference, 95 % interval"):
        table.add_column(name, overflow="fold")
    for comparison in compared:
        table.add_row(comparison.row, comparison.against, str(comparison.seeds), str(comparison.difference))
    return table
