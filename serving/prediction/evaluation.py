"""Scores of predictions for rows with labels."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.table import Table

from modeling_roformer.output.extras import needs_extra

from ..errors import ServingError
from .heads import Head
from .rows import ERROR, ID

with needs_extra("predict", ServingError):
    from sklearn.metrics import confusion_matrix

    from modeling_roformer.training.finetuning import evaluation
    from modeling_roformer.training.finetuning.answers import answer_scores
    from modeling_roformer.training.finetuning.confusion import draw_confusion
    from modeling_roformer.training.finetuning.spans import SpanPredictions


@dataclass
class Evaluation:
    """Scores of predictions, also as tables. `left_out` counts the rows without a label, or with an error,
    and `without` those whose text has no predicted class.

    `names` and `counts` are those of the confusion matrix of a head that predicts one class.
    """

    scores: dict[str, float]
    tables: list[Table]
    rows: int = 0
    left_out: int = 0
    without: int = 0
    names: list[str] = field(default_factory=list)
    counts: np.ndarray | None = None

    def draw_confusion(self, picture: Path) -> None:
        """Draw the confusion matrix into a PNG file."""
        if self.counts is None:
            raise ServingError("only one class per text has a confusion matrix: leave --confusion out")
        picture.parent.mkdir(parents=True, exist_ok=True)
        draw_confusion(picture, self.names, self.counts)


def evaluate(head: Head, rows: Iterable[dict], column: str, separator: str | None) -> Evaluation | None:
    """Compare predicted rows with the labels in a column. Return None if no row has this column.

    Args:
        rows: rows with the results of `head`.
        separator: what separates several labels in a text; None if the column has lists.

    Raises:
        ServingError: no row has a label, a label cannot be read, or the head has no scores.
    """
    check_labels(head, separator)
    known, predicted, left_out, has_column = [], [], 0, False
    for row in rows:
        has_column |= column in row
        if ERROR in row or not has_label(head, row.get(column)):
            left_out += 1
            continue
        known.append(label_of(head, row[column], separator, f"{row[ID]}: {column}"))
        predicted.append(row["predicted"])
    if not has_column:
        return None
    if not known:
        raise ServingError(f"no row with a prediction has a label in the column {column!r}")
    found = _EVALUATIONS[head.labels](head, known, predicted)
    found.rows, found.left_out = len(known), left_out
    found.without = sum(value is None or value == [] for value in predicted) if head.labels != "entities" else 0
    return found


def check_labels(head: Head, separator: str | None) -> None:
    """Raise ServingError if a head has no labels to compare with, or no several ones to separate."""
    if head.labels not in _EVALUATIONS:
        raise ServingError(f"--label has no meaning for {head.kind()}: leave it out")
    if separator is not None and head.labels != "several":
        raise ServingError(f"--label-separator has no meaning for {head.kind()}: leave it out")


def has_label(head: Head, value: object) -> bool:
    """Return whether a row has a label: a blank text is none, and for answers, neither is an empty list."""
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and not (head.labels == "answers" and value == [])


def label_of(head: Head, value: object, separator: str | None, where: str) -> object:
    """Return a label as the head predicts it: the name of a class, a set of names, a number, spans or answers.

    Raises:
        ServingError: it cannot be read; `where` names it.
    """
    if head.labels == "classes" and not isinstance(value, (list, dict)):
        return str(value)
    if head.labels == "numbers" and not isinstance(value, (list, dict, bool)):
        try:
            if np.isfinite(number := float(value)):
                return number
        except (ValueError, OverflowError):
            pass
    if head.labels == "several":
        if separator and isinstance(value, str):
            return {*map(str.strip, value.split(separator))} - {""}
        if isinstance(values := _parsed(value), list):  # with spaces around names, as a model has them
            return {*map(str, values)} - {""}
    if head.labels == "entities":
        spans = _parsed(value)
        if isinstance(spans, list):
            return {_span(span, where) for span in spans}
    if head.labels == "answers" and not isinstance(value, dict):
        return [str(answer) for answer in (value if isinstance(value, list) else [value])]
    expected = {
        "classes": "the name of a class",
        "numbers": "a number",
        "several": "a list of names, or a text that --label-separator splits",
        "entities": "a list of objects with start, end and label",
        "answers": "an answer, or a list of answers",
    }
    raise ServingError(f"{where} is {value!r}; expected {expected[head.labels]}")


def _parsed(value: object) -> object:
    """Return the value of JSON in a text, as CSV has it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def _span(value: object, where: str) -> tuple[int, int, str]:
    """Return the start, the end and the type of an entity."""
    if isinstance(value, dict):
        value = [value.get("start"), value.get("end"), value.get("label", value.get("type"))]
    if isinstance(value, list) and [*map(type, value)] == [int, int, str]:
        return value[0], value[1], value[2]
    raise ServingError(f"{where} has {value!r}; expected an object with start, end and label")


def _classes(head: Head, known: Sequence[str], predicted: Sequence[str | None]) -> Evaluation:
    names = list(getattr(head, "names", "BC"))
    if not {*known} & {*names}:
        raise ServingError(
            f"no label, such as {known[0]!r}, is a class of the model; its classes are "
            f"{', '.join(map(str, names[:10]))}: name another column with --label"
        )
    names += sorted({*known} - {*names})
    numbers = {name: number for number, name in enumerate(names)}
    labels = np.array([numbers[name] for name in known])
    found = np.array([len(names) if name is None else numbers[name] for name in predicted])
    present = sorted({*labels.tolist(), *found.tolist()} - {len(names)})
    scores = evaluation.class_scores(labels, found, present)
    tables = [evaluation.class_table(names, labels, found), evaluation.score_table(scores)]
    counts = confusion_matrix(labels, found, labels=range(len(names)))
    return Evaluation(scores, tables, names=names, counts=counts)


def _several(head: Head, known: Sequence[set[str]], predicted: Sequence[list[str]]) -> Evaluation:
    names = [*head.names, *sorted(set().union(*known) - {*head.names})]
    labels, found = (np.array([[name in row for name in names] for row in side]) for side in (known, predicted))
    scores = evaluation.several_scores(labels, found)
    return Evaluation(scores, [evaluation.class_table(names, labels, found), evaluation.score_table(scores)])


def _numbers(head: Head, known: Sequence[float], predicted: Sequence[float]) -> Evaluation:
    if isinstance(predicted[0], list):
        raise ServingError(f"--label has no meaning for {head.kind()} of which a text has several: leave it out")
    scores = evaluation.number_scores(known, predicted)
    return Evaluation(scores, [evaluation.score_table(scores)])


def _entities(head: Head, known: Sequence[set], predicted: Sequence[list[dict]]) -> Evaluation:
    found = [{(span["start"], span["end"], span["label"]) for span in row} for row in predicted]
    spans = SpanPredictions(known, found)
    return Evaluation({"f1": spans.f1, "macro_f1": spans.macro_f1}, [spans.table()])


def _answers(head: Head, known: Sequence[list[str]], predicted: Sequence[str]) -> Evaluation:
    scores = answer_scores(predicted, known)
    return Evaluation(scores, [evaluation.score_table(scores)])


_EVALUATIONS = {
    "classes": _classes,
    "several": _several,
    "numbers": _numbers,
    "entities": _entities,
    "answers": _answers,
}
