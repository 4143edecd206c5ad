"""Results of a fine-tuning: the scores of each seed in results.json, and those in the model card."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard
from rich.table import Table

from ...model_cards import card_of_folder, check_metadata
from ...model_cards.folder_card import CARD
from ...tokenization.whole_file import write_whole
from ..runs.finite import EARLIER, has_null
from ..runs.resuming import ResultsFile


class SeedResults:
    """Scores of each seed so far, in the results.json of a folder (see `ResultsFile`). A stopped run finds them again.

    `part` and `metric` name the score by which seeds are compared.
    """

    def __init__(self, output: str | Path, settings: Mapping, part: str = "validation", metric: str = "accuracy"):
        self.file = ResultsFile(output, settings)
        self.part, self.metric = part, metric
        self.seeds: dict[str, dict] = self.file.read(self._parse) or {}

    def __contains__(self, seed: int) -> bool:
        return str(seed) in self.seeds

    def add(self, seed: int, scores: Mapping[str, Mapping[str, float]], log: list[dict]) -> None:
        """Record the scores of a seed (split -> metric -> value) and Trainer's log."""
        self.seeds[str(seed)] = {"scores": scores, "log": log}
        self.write()

    def add_failed(self, seed: int, why: str) -> None:
        """Record why the run of a seed failed. It is not repeated."""
        self.seeds[str(seed)] = {"scores": None, "log": [], "failed": why}
        self.write()

    def write(self) -> None:
        """Write results.json. Create the folder if needed."""
        self.file.write(seeds=self.seeds)

    def _parse(self, saved: dict) -> dict[str, dict]:
        """Return the seeds of a results.json.

        Seeds for which an earlier version recorded NaN have failed. If it kept the model of such a seed as the best, the other
        seeds are left out, to be trained again.
        """
        self.seeds = dict(saved["seeds"])
        failed = {seed for seed, result in self.seeds.items() if "failed" not in result and has_null(result)}
        best = self.best  # raises an error if the file is damaged
        kept = best if failed else None
        return {
            seed: result | {"failed": EARLIER} if seed in failed else result
            for seed, result in self.seeds.items()
            if seed in failed or kept not in failed or result.get("failed")
        }

    @property
    def failed(self) -> dict[str, str | None]:
        """The reason why the run of each seed failed, or None."""
        return {seed: result.get("failed") for seed, result in self.seeds.items()}

    @property
    def best(self) -> str | None:
        """The first seed with the best score, or None if no run has succeeded."""
        return max((seed for seed, why in self.failed.items() if not why), key=self._score, default=None)

    def is_better(self, scores: Mapping[str, Mapping[str, float]]) -> bool:
        """Return whether scores are better than those of the best seed so far."""
        return self.best is None or scores[self.part][self.metric] > self._score(self.best)

    def _score(self, seed: str) -> float:
        score = self.seeds[seed]["scores"][self.part][self.metric]
        return math.inf if score is None else score  # earlier versions recorded NaN, and found no score better

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


def _columns(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    pairs = ((f"{part} {metric}", value) for part, values in scores.items() for metric, value in values.items())
    return {name.replace("_", " "): value for name, value in pairs}


_HEADING, _NOTHING = "## Results\n\n", "Not published.\n"


def write_scored_card(
    folder: str | Path, scores: Sequence[EvalResult], name: str | None = None, **facts: object
) -> None:
    """Write scores into the card of a saved model: into its `model-index`, and into the text under "Results".

    Args:
        folder: folder of the model. If it has no card, write one.
        scores: the scores. They replace older scores of the same metric and data.
        name: name of the model in a new card; if None, the name of the folder.
        facts: facts for `card_of_folder`. With any, write a new card; with `results`, that is the text under "Results".

    Raises a ValueError, and writes nothing, if a score is not finite.

    >>> score = EvalResult("text-classification", "reviews", "reviews", "accuracy", 0.925)
    >>> write_scored_card("classifier/model", [score])
    """
    for score in scores:
        if not math.isfinite(score.metric_value):
            raise ValueError(f"{score.metric_type} on {score.dataset_name} is {score.metric_value}: the run has failed")
    path = Path(folder) / CARD
    old = path.exists() and not facts
    card = ModelCard(path.read_text(encoding="utf-8") if old else card_of_folder(folder, name, **facts))
    known = card.data.eval_results or []
    others = [other for other in known if not any(score.is_equal_except_value(other) for score in scores)]
    card.data.eval_results = [*others, *scores]
    card.data.metrics = sorted({score.metric_type for score in card.data.eval_results})
    card.data.model_name = card.data.model_name or name or Path(folder).resolve().name
    if "results" not in facts:
        card.text = _with_lines(card.text, scores)
    check_metadata(str(card))
    write_whole(path.resolve(), str(card))


def _with_lines(text: str, scores: Sequence[EvalResult]) -> str:
    """Return the text with a line per score at the start of "Results", if it has that. Keep what people wrote there."""
    before, heading, after = text.partition(_HEADING)
    if not heading:
        return text
    new = {f"- {score.metric_type} on {score.dataset_name}: ": score.metric_value for score in scores}
    lines = [line for line in after.removeprefix(_NOTHING).splitlines(keepends=True) if not line.startswith(tuple(new))]
    end = next((i for i, line in enumerate(lines) if not line.startswith("- ")), len(lines))
    gap = "\n" * bool("".join(lines[end : end + 1]).strip())  # a blank line before text that people wrote
    added = [f"{start}{value:.4g}\n" for start, value in new.items()]
    return before + heading + "".join([*lines[:end], *added, gap, *lines[end:]])
