"""Reciprocal rank fusion (Cormack, Clarke and Buettcher 2009) of the results by vectors and by words, with a weight.

The weight of the vectors is between 0, words alone, and 1, vectors alone. `tune_weight` chooses it on queries whose
relevant texts are known. It is stored in `.weight.json` in the folder of vectors, with the unit of the words.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from modeling_roformer.files import write_whole

from ..errors import ServingError
from .evaluation import TUNED_BY, scores_of
from .matches import Match, check_ids
from .queries import Relevant

DEFAULT_WEIGHT = 0.5
DEPTH = 100  # texts of each list that are joined, or more if more results are asked for
_RANK_CONSTANT = 60  # k of the paper
_WEIGHTS = [step / 100 for step in range(101)]  # the smallest that change the first ranks are near 0.02
_FILE = ".weight.json"


@dataclass(frozen=True)
class TunedWeight:
    """A weight of the vectors, its mean reciprocal rank on the queries that chose it, and the unit of the words.

    `vectors` and `words` are the mean reciprocal ranks of each alone.
    """

    weight: float
    both: float
    vectors: float
    words: float
    queries: int
    unit: str

    def sentence(self) -> str:
        """Return the weight and the scores in a sentence."""
        return (
            f"--weight {self.weight:g}, chosen on {self.queries:,} queries: {TUNED_BY} {self.both:.3f}, of the vectors "
            f"alone {self.vectors:.3f}, of the words alone {self.words:.3f}"
        )


def fuse(vectors: Sequence[Match], words: Sequence[Match], weight: float) -> list[Match]:
    """Return the texts of two lists by their sums of weighted reciprocal ranks, best first.

    The sums are scaled: 1 is the first text of both lists. Raises ServingError if two texts of a list have one id.
    """
    for matches in (vectors, words):
        check_ids(matches)
    scores: dict[str, float] = {}
    found: dict[str, Match] = {}
    for share, matches in ((weight, vectors), (1 - weight, words)):
        for place, match in enumerate(matches, 1):
            scores[match.id] = scores.get(match.id, 0.0) + share * (_RANK_CONSTANT + 1) / (_RANK_CONSTANT + place)
            found.setdefault(match.id, match)
    fused = [replace(match, score=scores[id_]) for id_, match in found.items() if scores[id_] > 0]
    return sorted(fused, key=lambda match: -match.score)  # stable


def tune_weight(
    vectors: Sequence[list[Match]], words: Sequence[list[Match]], ids: Sequence[str], relevant: Relevant, unit: str
) -> TunedWeight:
    """Return the weight with the largest mean reciprocal rank; of equal ones, that nearest to 0.5.

    Raises ServingError if no relevant text is found with any weight.
    """

    def mean(weight: float) -> float:
        found = (
            scores_of([match.id for match in fuse(*lists, weight)], relevant[id_])[TUNED_BY]
            for *lists, id_ in zip(vectors, words, ids, strict=True)
            if relevant.get(id_)
        )
        return float(np.mean([*found] or [0.0]))

    means = {weight: mean(weight) for weight in _WEIGHTS}
    best = max(means, key=lambda weight: (means[weight], -abs(weight - DEFAULT_WEIGHT)))
    if not means[best]:
        raise ServingError(
            "no relevant text is among the first 10 of any query, so no weight can be chosen: check that the relevant "
            "ids are those of the texts (--id-field of `roformer embed`), and the queries' those of the qrels"
        )
    judged = sum(bool(relevant.get(id_)) for id_ in ids)
    return TunedWeight(best, means[best], means[1.0], means[0.0], judged, unit)


def store_weight(folder: Path, tuned: TunedWeight) -> None:
    """Store a weight beside the vectors."""
    write_whole(folder / _FILE, json.dumps(asdict(tuned), indent=2) + "\n")


def stored_weight(folder: Path, unit: str) -> float:
    """Return the weight that was chosen for words of this unit, or 0.5. Raises ServingError if its file is damaged."""
    try:
        tuned = TunedWeight(**json.loads((folder / _FILE).read_bytes()))
        is_weight = 0 <= tuned.weight <= 1
    except FileNotFoundError:
        return DEFAULT_WEIGHT
    except (ValueError, TypeError):
        is_weight = False
    if not is_weight:
        raise ServingError(f"{folder / _FILE} is damaged: choose the weight again with --tune")
    return tuned.weight if tuned.unit == unit else DEFAULT_WEIGHT
