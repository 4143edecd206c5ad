"""The minimum score of a class, chosen on labelled rows and stored in a file."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from modeling_roformer.data.records import Records
from modeling_roformer.files import write_whole
from modeling_roformer.files.reading import read_json
from modeling_roformer.output.progress import byte_progress

from ..errors import ServingError
from .predictor import Predictor
from .rows import ERROR, ID, read_parts


def best_threshold(scores: Sequence[float], is_right: Sequence[bool], known: int) -> tuple[float, float]:
    """Return the threshold with the largest F1 of all predicted labels, the smallest one if there are several; and F1.

    Args:
        scores: the score of each label that is predicted at some threshold.
        is_right: whether the text has that label.
        known: number of labels that the texts have.

    >>> best_threshold([0.9, 0.8, 0.3], [True, True, False], known=2)
    (0.8, 1.0)
    """
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    values, right = values[order], np.cumsum(np.asarray(is_right)[order])
    f1 = 2 * right / (np.arange(1, len(values) + 1) + known)
    f1[:-1][values[:-1] == values[1:]] = -1  # labels of equal scores are predicted together
    best = len(f1) - 1 - int(f1[::-1].argmax())
    return float(values[best]), float(f1[best])


def labels_with_scores(rows: Iterable[tuple[set[str], dict[str, float]]], has_several: bool) -> tuple[list, list, int]:
    """Return the arguments of `best_threshold`.

    Args:
        rows: the labels of each text, and the scores of all classes.
        has_several: whether all classes may be predicted, or the best one alone.
    """
    scores, is_right, known = [], [], 0
    for labels, of_row in rows:
        known += len(labels)
        for name in of_row if has_several else [max(of_row, key=of_row.__getitem__)]:
            scores.append(of_row[name])
            is_right.append(name in labels)
    return scores, is_right, known


def tuned(
    predictor: Predictor, records: Records, column: str, separator: str | None, progress: bool
) -> tuple[float, float]:
    """Return the best threshold for labelled rows, and its F1.

    Args:
        predictor: a predictor with the scores of all classes.
        records: the labelled rows. A row with a blank label has none.
        column, separator: see `evaluate`.
    """
    from .evaluation import check_labels, has_label, label_of

    head = predictor.head
    check_labels(head, separator)
    rows = []
    with byte_progress(progress) as bar:
        task = bar.add_task("choosing the threshold", total=records.size())
        for part in read_parts(records, head.texts, head.columns, column):
            lines, _ = predictor.predict(part, strict=False)
            for row in map(json.loads, lines.splitlines()):
                if ERROR in row:
                    continue
                label, labels = row.get(column), set()
                if has_label(head, label):
                    labels = label_of(head, label, separator, f"{row[ID]}: {column}")
                rows.append(({labels} if isinstance(labels, str) else labels, row["scores"]))
            bar.advance(task, part.read)
    if not any(labels for labels, _ in rows):
        raise ServingError(f"no row of {', '.join(records.sources)} has a label in the column {column!r}")
    return best_threshold(*labels_with_scores(rows, head.labels == "several"))


def write_threshold(path: Path, threshold: float, f1: float, model: str) -> None:
    """Write a threshold with its F1 and the identity of its model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({"threshold": threshold, "f1": round(f1, 6), "model": model}, indent=2) + "\n")


def read_threshold(threshold: str, model: str) -> float:
    """Return a number, or the threshold in a file; raise ServingError if it is of another model, or neither."""
    try:
        number = float(threshold)
    except ValueError:
        pass
    else:
        return _checked(number, "threshold")
    if not Path(threshold).is_file():
        raise ServingError(
            f"threshold is {threshold!r}, and there is no such file; expected a number, or a file that --tune wrote"
        )
    stored = read_json(threshold)
    value = stored.get("threshold")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ServingError(f"{threshold} has no threshold: choose one with --tune")
    if stored.get("model") != model:
        raise ServingError(f"{threshold} is the threshold of another model: choose one for this model with --tune")
    return _checked(value, f"{threshold}: threshold")


def _checked(value: float, where: str) -> float:
    """Return a threshold; raise ServingError if it is no probability."""
    if not 0 <= value <= 1:
        raise ServingError(f"{where} is {value}; expected a probability, from 0 to 1")
    return float(value)
