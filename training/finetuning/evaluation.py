"""Evaluation of predictions for labelled texts: scores, and the table of classes."""

from collections.abc import Sequence

import numpy as np
from rich.table import Table
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, precision_recall_fscore_support

THRESHOLD = 0.5  # a text with several labels gets those with at least this probability


def class_scores(labels: np.ndarray, predicted: np.ndarray, classes: Sequence[int] | None = None) -> dict[str, float]:
    """Return accuracy and macro F1 of predicted class ids. Macro F1 is the mean over `classes`, by default over those
    that occur.

    >>> class_scores([0, 0, 1], [0, 1, 1])
    {'accuracy': 0.6666666666666666, 'macro_f1': 0.6666666666666666}
    """
    return {
        "accuracy": float(accuracy_score(labels, predicted)),
        "macro_f1": float(f1_score(labels, predicted, labels=classes, average="macro")),
    }


def several_scores(labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return macro F1, micro F1 and exact match of several labels per text, matrices (texts, labels) of 0 and 1.

    Macro F1 is the mean over the labels that occur in either matrix, as that of classes. Exact match is the share of
    texts whose labels are all right.

    >>> several_scores(np.array([[1, 1], [0, 0]]), np.array([[1, 0], [0, 0]]))
    {'macro_f1': 0.5, 'micro_f1': 0.6666666666666666, 'exact_match': 0.5}
    """
    labels, predicted = np.asarray(labels, dtype=bool), np.asarray(predicted, dtype=bool)
    found = {
        f"{average}_f1": f1_score(labels, predicted, average=average, zero_division=np.nan)
        for average in ("macro", "micro")
    }
    scores = found | {"exact_match": (labels == predicted).all(axis=-1).mean()}
    return {name: float(np.nan_to_num(value)) for name, value in scores.items()}  # NaN: no label anywhere


def number_scores(labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return the mean absolute error, and the correlations of Pearson and Spearman, of predicted numbers.

    If all numbers are equal, where a correlation is not defined, it is 0. For Spearman's, predictions that differ by
    about 1e-5 of their range are equal: that of a text depends a little on the others in its batch.

    >>> number_scores([1, 2, 4], [1, 2, 3])
    {'mean_absolute_error': 0.3333333333333333, 'pearson': 0.9819805060619656, 'spearman': 1.0}
    """
    labels, predicted = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (labels, predicted))
    scores = {"mean_absolute_error": float(mean_absolute_error(labels, predicted)), "pearson": 0.0, "spearman": 0.0}
    if np.ptp(labels) > 0 and np.ptp(predicted) > 0:
        ranked = np.round((predicted - predicted.min()) / np.ptp(predicted), 5)
        scores["pearson"] = float(pearsonr(labels, predicted).statistic)
        scores["spearman"] = float(spearmanr(labels, ranked).statistic)
    return scores


def class_table(names: Sequence[str], labels: np.ndarray, predicted: np.ndarray) -> Table:
    """Return a table with precision, recall, F1 and the number of texts of each class, to be printed without markup.

    Args:
        names: names of the classes, in the order of their ids.
        labels: the class id of each text; of several labels per text, a matrix (texts, labels) of 0 and 1.
        predicted: the predicted class ids, or the matrix of the predicted labels.

    >>> Console(markup=False).print(class_table(["差评", "好评"], [0, 1, 1], [0, 1, 0]))
    """
    measured = precision_recall_fscore_support(labels, predicted, labels=range(len(names)), zero_division=0)
    table = Table("", "class")
    for title in ("precision", "recall", "F1", "texts"):
        table.add_column(title, justify="right")
    for number, (name, *figures, texts) in enumerate(zip(names, *measured, strict=True), 1):
        table.add_row(f"{number}", name, *(f"{value:.3f}" for value in figures), f"{texts:,}")
    return table


def score_table(scores: dict[str, float]) -> Table:
    """Return a table of one row with scores.

    >>> Console().print(score_table(number_scores([1, 2, 4], [1, 2, 3])))
    """
    table = Table(*(name.replace("_", " ") for name in scores))
    table.add_row(*(f"{value:.3f}" for value in scores.values()))
    return table
