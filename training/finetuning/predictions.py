"""Predictions of a classifier, of classes, several labels or numbers: their file, their table and their picture."""

import csv
import io
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import expit, softmax
from sklearn.metrics import confusion_matrix

from modeling_roformer.files import write_whole
from modeling_roformer.files.new_file import require_writable

from ..errors import TrainingError
from .confusion import draw_confusion
from .evaluation import THRESHOLD, class_table, number_scores, score_table


@dataclass(frozen=True)
class Predictions(ABC):
    """Predictions of a classifier for labelled texts.

    names: names of the classes, in the order of their ids.
    labels: the label of each text.
    logits: logits of the model, of shape (texts, classes).
    """

    names: Sequence[str]
    labels: np.ndarray
    logits: np.ndarray

    @abstractmethod
    def table(self) -> Table:
        """Return a table of scores, to be printed without markup."""

    @abstractmethod
    def columns(self) -> dict[str, list]:
        """Return the columns of a file: the label of each text, and what is predicted."""

    def print_table(self) -> None:
        """Print the table of scores."""
        Console(markup=False).print(self.table())

    def warn_of_one_class(self, model: str, advice: str) -> None:
        """Print a warning on stderr if the model predicts the same for all texts, whose labels differ."""
        columns = self.columns()
        labels, predicted = ({*map(str, columns[name])} for name in ("label", "predicted"))
        if len(predicted) == 1 < len(labels):
            found = f"{model} predicts {columns['predicted'][0]!r} for all {len(self.labels):,} texts"
            print(f"warning: {found}, so it has learned nothing: {advice}", file=sys.stderr)

    def draw_confusion(self, picture: str | Path) -> Path | None:
        """Draw the confusion matrix into a PNG file. Return its path, or None if there is no such matrix."""
        return None

    def write(self, file: str | Path, texts: Mapping[str, Sequence[str]]) -> None:
        """Write a row per text: the texts, and the `columns`.

        Args:
            file: see `write_predictions`.
            texts: name of each column of texts -> its texts.
        """
        write_predictions(file, {**texts, **self.columns()})


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _rounded(numbers: np.ndarray) -> list[float]:
    return [round(number, 6) for number in numbers.tolist()]


class ClassPredictions(Predictions):
    """Predictions of one class for each text; `labels` are class ids.

    >>> found = trainer.predict(texts)
    >>> ClassPredictions(names, found.label_ids, found.predictions).print_table()
    """

    @cached_property
    def predicted(self) -> np.ndarray:
        """The predicted class id of each text."""
        return np.asarray(self.logits).argmax(-1)

    @cached_property
    def scores(self) -> np.ndarray:
        """The probability of the predicted class of each text."""
        return softmax(np.asarray(self.logits, dtype=np.float64), axis=-1).max(-1)

    def table(self) -> Table:
        """Return precision, recall, F1 and the number of texts of each class."""
        return class_table(self.names, self.labels, self.predicted)

    def columns(self) -> dict[str, list]:
        """Return the class of each text, the predicted class, and the score, which is its probability."""
        return {
            "label": [self.names[number] for number in self.labels],
            "predicted": [self.names[number] for number in self.predicted],
            "score": _rounded(self.scores),
        }

    def draw_confusion(self, picture: str | Path) -> Path:
        """Draw the confusion matrix into a PNG file: a row for each class, and a column for each predicted one."""
        counts = confusion_matrix(self.labels, self.predicted, labels=range(len(self.names)))
        return draw_confusion(Path(picture), self.names, counts)


class SeveralPredictions(Predictions):
    """Predictions of several labels for each text; `labels` is a matrix (texts, labels) of 0 and 1."""

    @cached_property
    def scores(self) -> np.ndarray:
        """The probability of each label of each text."""
        return expit(np.asarray(self.logits, dtype=np.float64))

    def table(self) -> Table:
        """Return precision, recall, F1 and the number of texts of each label."""
        return class_table(self.names, self.labels, self.scores >= THRESHOLD)

    def columns(self) -> dict[str, list]:
        """Return the labels of each text, the predicted labels, the likeliest first, and their probabilities."""
        chosen = [[at for at in np.argsort(-row, kind="stable") if row[at] >= THRESHOLD] for row in self.scores]
        return {
            "label": [[self.names[at] for at in np.flatnonzero(row)] for row in self.labels],
            "predicted": [[self.names[at] for at in places] for places in chosen],
            "score": [_rounded(row[places]) for row, places in zip(self.scores, chosen, strict=True)],
        }


class NumberPredictions(Predictions):
    """Predictions of a number for each text; `labels` are numbers."""

    @cached_property
    def predicted(self) -> np.ndarray:
        """The predicted number of each text."""
        return np.asarray(self.logits, dtype=np.float64).reshape(-1)

    def table(self) -> Table:
        """Return the mean absolute error and correlations."""
        return score_table(number_scores(self.labels, self.predicted))

    def columns(self) -> dict[str, list]:
        """Return the number of each text, and the predicted one."""
        return {"label": self.labels.tolist(), "predicted": _rounded(self.predicted)}


def write_predictions(file: str | Path, columns: Mapping[str, Sequence]) -> None:
    """Write columns into a file: CSV by the name .csv, with a byte order mark, which Excel needs; otherwise JSON Lines.
    In CSV, a list is written as JSON."""
    file = Path(file)
    rows, content = zip(*columns.values(), strict=True), io.StringIO(newline="")
    if file.suffix.lower() == ".csv":
        content.write("\ufeff")
        csv.writer(content).writerows([columns.keys(), *([*map(_cell, row)] for row in rows)])
    else:
        for row in rows:
            content.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file.absolute(), content.getvalue().encode())


def check_predictions_file(file: str | Path, sources: Sequence[str | Path | None] = (), replace: bool = False) -> None:
    """Check, before hours of training, that a file of predictions would replace no other file.

    Args:
        file: the file. Folders that are missing are made when it is written.
        sources: files that are read, or None; they are never replaced.
        replace: whether the file may exist. Folders, pipes, devices and files of a model are never replaced.

    Raises a TrainingError that names it.
    """
    try:
        require_writable(file, True if replace else None, [source for source in sources if source is not None])
    except FileExistsError as error:
        raise TrainingError(str(error)) from None
