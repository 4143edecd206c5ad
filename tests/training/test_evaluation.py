"""Scores of predictions, against the formulas written out, and the table of classes."""

import warnings

import numpy as np
import pytest
from helpers.properties import max_examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rich.console import Console

from modeling_roformer.training.finetuning.evaluation import (
    class_scores,
    class_table,
    number_scores,
    score_table,
    several_scores,
)


def matrices(least_columns):
    shapes = st.tuples(st.integers(1, 6), st.integers(least_columns, 4))
    return shapes.flatmap(lambda shape: st.tuples(arrays(bool, shape), arrays(bool, shape)))


def f1(truth, found):
    return 2 * (truth & found).sum() / (truth.sum() + found.sum())


@max_examples(50)
@given(matrices(2))
def test_scores_of_several_labels(both):
    labels, predicted = both
    with warnings.catch_warnings(action="error"):
        scores = several_scores(labels.astype(np.float32), predicted)
    occur = [place for place in range(labels.shape[1]) if (labels | predicted)[:, place].any()]
    macro = [f1(labels[:, place], predicted[:, place]) for place in occur]
    assert scores["macro_f1"] == pytest.approx(np.mean(macro) if macro else 0)
    assert scores["micro_f1"] == pytest.approx(f1(labels, predicted) if macro else 0)
    assert scores["exact_match"] == np.mean([list(a) == list(b) for a, b in zip(labels, predicted, strict=True)])


@max_examples(50)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1))
def test_scores_of_classes(pairs):
    labels, predicted = map(np.array, zip(*pairs, strict=True))
    scores = class_scores(labels, predicted)
    assert scores["accuracy"] == pytest.approx(np.mean(labels == predicted))
    occur = {*labels, *predicted}
    assert scores["macro_f1"] == pytest.approx(np.mean([f1(labels == of, predicted == of) for of in occur]))


def test_scores_of_numbers():
    labels, predicted = np.array([1.0, 2, 4, 8]), np.array([[2.0], [1], [3], [9]], dtype=np.float32)
    scores = number_scores(labels, predicted)
    flat = predicted[:, 0]
    assert scores["mean_absolute_error"] == 1
    assert scores["pearson"] == pytest.approx(np.corrcoef(labels, flat)[0, 1])
    assert scores["spearman"] == pytest.approx(np.corrcoef([0, 1, 2, 3], [1, 0, 2, 3])[0, 1])
    with warnings.catch_warnings(action="error"):  # where a correlation is not defined
        assert number_scores([1.0, 2], [3.0, 3]) == {"mean_absolute_error": 1.5, "pearson": 0, "spearman": 0}
        assert number_scores([1.0], [3.0]) == {"mean_absolute_error": 2, "pearson": 0, "spearman": 0}


def rows_of(table):
    return [[*column.cells] for column in table.columns]


def test_the_table_of_classes(capsys):
    ids = rows_of(class_table(["[b]", "好"], np.array([0, 0, 1]), np.array([0, 1, 1])))
    assert ids == [["1", "2"], ["[b]", "好"], ["1.000", "0.500"], ["0.500", "1.000"], ["0.667", "0.667"], ["2", "1"]]
    labels, predicted = np.array([[1, 0], [1, 1], [0, 0]]), np.array([[1, 0], [0, 1], [0, 1]])
    several = rows_of(class_table(["甲", "乙"], labels, predicted))
    assert several[2:] == [["1.000", "0.500"], ["0.500", "1.000"], ["0.667", "0.667"], ["2", "1"]]
    Console(markup=False).print(class_table(["[b]", "好"], np.array([0, 1]), np.array([0, 1])))
    assert "[b]" in capsys.readouterr().out
    assert rows_of(score_table({"exact_match": 0.5})) == [["0.500"]]
