"""What a fine-tuning gave with each seed, in a results.json that grows seed by seed."""

import statistics
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from .results_file import ResultsFile


class SeedResults:
    """The scores of each seed so far, which a run that was stopped finds again.

    Args:
        output: folder of the run, where results.json is or will be.
        settings: what must be the same for a run to go on, as JSON holds it.
        part, metric: the score by which seeds are compared.

    Raises a TrainingError where the folder holds something else.
    """

    def __init__(self, output: str | Path, settings: Mapping, part: str = "validation", metric: str = "accuracy"):
        self.file = ResultsFile(output, settings)
        self.seeds: dict[str, dict] = self.file.read(lambda saved: dict(saved["seeds"])) or {}
        self.part, self.metric = part, metric

    def __contains__(self, seed: int) -> bool:
        return str(seed) in self.seeds

    def add(self, seed: int, scores: Mapping[str, Mapping[str, float]], log: list[dict]) -> None:
        """Write down the scores of a seed.

        Args:
            scores: part of the data -> metric -> value.
            log: what Trainer logged.
        """
        self.seeds[str(seed)] = {"scores": scores, "log": log}
        self.write()

    def write(self) -> None:
        """Write results.json, in a new folder where there is none."""
        self.file.write(seeds=self.seeds)

    @property
    def best(self) -> str | None:
        """The seed with the best score to compare by, the earlier one of two equals; None before the first."""
        return max(self.seeds, key=self._score, default=None)

    def is_better(self, scores: Mapping[str, Mapping[str, float]]) -> bool:
        """Whether scores, as `add` takes them, are better than those of the best seed so far."""
        return self.best is None or scores[self.part][self.metric] > self._score(self.best)

    def _score(self, seed: str) -> float:
        return self.seeds[seed]["scores"][self.part][self.metric]

    def table(self) -> Table:
        """A row for each seed, then mean and standard deviation."""
        rows = {seed: _columns(result["scores"]) for seed, result in self.seeds.items()}
        names = list(rows[self.best])
        table = Table("seed")
        for name in names:
            table.add_column(name, justify="right")
        for seed, row in rows.items():
            best = " (best)" * (seed == self.best and len(rows) > 1)
            table.add_row(f"{seed}{best}", *(f"{row[name]:.3f}" for name in names))
        if len(rows) > 1:
            columns = [[row[name] for row in rows.values()] for name in names]
            table.add_section()
            table.add_row(
                "mean", *(f"{statistics.mean(column):.3f} ± {statistics.stdev(column):.3f}" for column in columns)
            )
        return table


def _columns(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {
        f"{part} {metric}".replace("_", " "): value
        for part, values in scores.items()
        for metric, value in values.items()
    }
