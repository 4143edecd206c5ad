"""Results of a fine-tuning: the scores of each seed in results.json."""

import statistics
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from ..runs.resuming import ResultsFile, require_values


class SeedResults:
    """Scores of each seed so far, in the results.json of a folder (see `ResultsFile`). A stopped run finds them again.

    `part` and `metric` name the score by which seeds are compared.
    """

    def __init__(self, output: str | Path, settings: Mapping, part: str = "validation", metric: str = "accuracy"):
        self.file = ResultsFile("finetune_classification.py", output, settings)
        self.part, self.metric = part, metric
        self.seeds: dict[str, dict] = self.file.read(self._parse) or {}

    def __contains__(self, seed: int) -> bool:
        return str(seed) in self.seeds

    def add(self, seed: int, scores: Mapping[str, Mapping[str, float]], log: list[dict], weights: str = "") -> None:
        """Record the scores of a seed (split -> metric -> value), Trainer's log, and the digest of its model, if that
        is kept."""
        self.seeds[str(seed)] = {"scores": scores, "log": log, "weights": weights}
        self.write()

    def add_failed(self, seed: int, why: str) -> None:
        """Record why the run of a seed failed. It is not repeated."""
        self.seeds[str(seed)] = {"scores": None, "log": [], "failed": why}
        self.write()

    def write(self) -> None:
        """Write results.json. Create the folder if needed."""
        self.file.write(seeds=self.seeds)

    def _parse(self, saved: dict) -> dict[str, dict]:
        """Return the seeds of a results.json. Raise an error if it is damaged."""
        self.seeds = read_seeds(saved)
        self._best_of(self.seeds)  # a KeyError if a score is missing
        return self.seeds

    @property
    def failed(self) -> dict[str, str | None]:
        """The reason why the run of each seed failed, or None."""
        return {seed: result.get("failed") for seed, result in self.seeds.items()}

    @property
    def best(self) -> str | None:
        """The first seed with the best score, or None if no run has succeeded."""
        return self._best_of(self.seeds)

    @property
    def weights(self) -> dict[str, str | None]:
        """The digest of each seed's model: empty if it was not kept, None if an earlier version did not record it."""
        return {seed: result.get("weights") for seed, result in self.seeds.items()}

    def is_best(self, seed: int, scores: Mapping[str, Mapping[str, float]]) -> bool:
        """Return whether a seed is the best one if it has these scores."""
        return self._best_of({**self.seeds, str(seed): {"scores": scores}}) == str(seed)

    def _best_of(self, seeds: Mapping[str, dict]) -> str | None:
        done = (seed for seed, result in seeds.items() if not result.get("failed"))
        return max(done, key=lambda seed: seeds[seed]["scores"][self.part][self.metric], default=None)

    def table(self) -> Table:
        """Return a table with a row per seed, then mean and standard deviation of the seeds that have not failed."""
        rows = {seed: _columns(self.seeds[seed]["scores"]) for seed, why in self.failed.items() if not why}
        names = list(rows[self.best]) if rows else ["scores"]
        table = Table("seed")
        for name in names:
            table.add_column(name, justify="right")
        for seed in self.seeds:
            best = " (best)" * (seed == self.best and len(rows) > 1)
            cells = [f"{rows[seed][name]:.3f}" for name in names] if seed in rows else ["failed"]
            table.add_row(f"{seed}{best}", *cells)
        if len(rows) > 1:
            columns = [[row[name] for row in rows.values()] for name in names]
            table.add_section()
            table.add_row("mean", *(f"{statistics.mean(c):.3f} ± {statistics.stdev(c):.3f}" for c in columns))
        return table


def read_seeds(saved: Mapping) -> dict[str, dict]:
    """Return the seeds of a results.json. Raise a ValueError, LookupError, TypeError or AttributeError if one is
    misshapen."""
    seeds, parts = dict(saved["seeds"]), set()
    for seed, result in seeds.items():
        if not seed.isdecimal():
            raise ValueError("a seed that is no number")
        if result.get("failed"):
            require_values([result["failed"]])
            continue
        scores = _columns(result["scores"])
        require_values([result.get("weights") or ""], [*scores.values(), *(entry["epoch"] for entry in result["log"])])
        if not scores or max(scores.values()) > 1:
            raise ValueError("a score above 1, or none")
        parts.add(tuple(scores))
    if len(parts) > 1:
        raise ValueError("seeds with other scores")
    return seeds


def _columns(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    pairs = ((f"{part} {metric}", value) for part, values in scores.items() for metric, value in values.items())
    return {name.replace("_", " "): value for name, value in pairs}
