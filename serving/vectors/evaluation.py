"""Scores of a search by judgements of its results, as trec_eval computes them."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from ..errors import ServingError
from .matches import Ranking, check_ids
from .queries import Relevant

TUNED_BY = "mrr@10"
METRICS = (TUNED_BY, "ndcg@10", "recall@10", "recall@100")


def scores_of(found: Sequence[str], relevant: dict[str, int]) -> dict[str, float]:
    """Return the metrics of one query.

    Args:
        found: ids of texts, best first.
        relevant: id of each relevant text -> its grade, the gain of nDCG.
    """
    first = next((place for place, id_ in enumerate(found[:10], 1) if id_ in relevant), math.inf)
    gains = [relevant.get(id_, 0) for id_ in found[:10]]
    ideal = sorted(relevant.values(), reverse=True)[:10]
    values = (1 / first, _dcg(gains) / _dcg(ideal), *(_recall(found[:k], relevant) for k in (10, 100)))
    return dict(zip(METRICS, values, strict=True))


def _dcg(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, 1))


def _recall(found: Sequence[str], relevant: dict[str, int]) -> float:
    return len(relevant.keys() & set(found)) / len(relevant)


@dataclass(frozen=True)
class Evaluation:
    """Metrics of each judged query, and the number of queries without a relevant text, which are left out."""

    scores: dict[str, list[float]]
    left_out: int

    @property
    def queries(self) -> int:
        """Number of judged queries."""
        return len(self.scores[TUNED_BY])

    def intervals(self, groups: Sequence | None = None) -> dict[str, tuple[float, float, float]]:
        """Return the mean of each metric and the bounds of its 95 % interval, by resampling the queries.

        Args:
            groups: the group of each query, if queries of one group are not independent: they are drawn together.
        """
        from modeling_roformer.training.comparing.paired_bootstrap import paired_bootstrap

        found = {}
        for name, values in self.scores.items():
            if len(values) > 1:
                result = paired_bootstrap(values, [0.0] * len(values), groups)
                found[name] = (result.mean, result.low, result.high)
            else:  # one query has no interval
                found[name] = (values[0], values[0], values[0])
        return found

    def table(self) -> Table:
        """Return the means and intervals as a rich table."""
        table = Table("metric", "mean", "95 % interval", title=f"{self.queries:,} queries")
        for name, (mean, low, high) in self.intervals().items():
            table.add_row(name, f"{mean:.3f}", f"{low:.3f} to {high:.3f}")
        return table

    def json(self) -> str:
        """Return an object with the numbers of queries, and the mean and interval of each metric."""
        metrics = {
            name: {"mean": mean, "low": low, "high": high} for name, (mean, low, high) in self.intervals().items()
        }
        return json.dumps({"queries": self.queries, "left_out": self.left_out, **metrics}) + "\n"


def evaluate(ranking: Ranking, relevant: Relevant) -> Evaluation:
    """Return the metrics of a ranking of at least 100 texts per query.

    Raises ServingError if no query has a relevant text, or if two texts of a query have one id.
    """
    for matches in ranking.matches:
        check_ids(matches)
    judged = [
        scores_of([match.id for match in matches], relevant[id_])
        for id_, matches in zip(ranking.ids, ranking.matches, strict=True)
        if relevant.get(id_)
    ]
    if not judged:
        raise ServingError(
            f"no query has a relevant text in the qrels: the ids of the queries are {ranking.ids[0]!r} and so on "
            f"(--id-field names their field), those of the qrels {next(iter(relevant), None)!r}"
        )
    scores = {name: [of_query[name] for of_query in judged] for name in METRICS}
    return Evaluation(scores, len(ranking.ids) - len(judged))
