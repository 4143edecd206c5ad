"""Predictions of a classifier: the class of each text, scores per class, and the confusion matrix."""

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.console import Console
from scipy.special import softmax
from sklearn.metrics import confusion_matrix

from modeling_roformer.files import write_whole
from modeling_roformer.files.new_file import require_writable

from ..errors import TrainingError
from .confusion import draw_confusion
from .evaluation import class_table


@dataclass(frozen=True)
class ClassPredictions:
    """Predictions of a classifier for labelled texts.

    names: names of the classes, in the order of their ids.
    labels: the class id of each text.
    logits: logits of the model, of shape (texts, classes).

    >>> found = trainer.predict(texts)
    >>> ClassPredictions(names, found.label_ids, found.predictions).print_table()
    """

    names: Sequence[str]
    labels: np.ndarray
    logits: np.ndarray

    @cached_property
    def predicted(self) -> np.ndarray:
        """The predicted class id of each text."""
        return np.asarray(self.logits).argmax(-1)

    @cached_property
    def scores(self) -> np.ndarray:
        """The probability of the predicted class of each text."""
        return softmax(np.asarray(self.logits, dtype=np.float64), axis=-1).max(-1)

    def warn_of_one_class(self, model: str, advice: str) -> None:
        """Print a warning on stderr if the model predicts the same class for texts of several classes."""
        if len({*self.predicted.tolist()}) == 1 < len({*np.asarray(self.labels).tolist()}):
            found = f"{model} predicts {self.names[self.predicted[0]]!r} for all {len(self.labels):,} texts"
            print(f"warning: {found}, so it has learned nothing: {advice}", file=sys.stderr)

    def print_table(self) -> None:
        """Print precision, recall, F1 and the number of texts of each class."""
        Console(markup=False).print(class_table(self.names, self.labels, self.predicted))

    def draw_confusion(self, picture: str | Path) -> Path:
        """Draw the confusion matrix into a PNG file: a row for each class, and a column for each predicted one."""
        counts = confusion_matrix(self.labels, self.predicted, labels=range(len(self.names)))
        return draw_confusion(Path(picture), self.names, counts)

    def write(self, file: str | Path, texts: Mapping[str, Sequence[str]]) -> None:
        """Write a row per text: the texts, its label, the predicted class, and the score, which is its probability.

        Args:
            file: CSV by the name .csv, with a byte order mark, which Excel needs; otherwise JSON Lines.
            texts: name of each column of texts -> its texts.
        """
        file = Path(file)
        columns = {
            **texts,
            "label": [self.names[number] for number in self.labels],
            "predicted": [self.names[number] for number in self.predicted],
            "score": [round(score, 6) for score in self.scores.tolist()],
        }
        rows, content = zip(*columns.values(), strict=True), io.StringIO(newline="")
        if file.suffix.lower() == ".csv":
            content.write("\ufeff")
            csv.writer(content).writerows([columns.keys(), *rows])
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
