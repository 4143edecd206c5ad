"""Triplets are loaded and collated, and baselines decide by their formulas."""

import json
from collections import Counter

import datasets
import numpy as np
import pytest
import rjieba
import torch
from helpers.messages import refused
from helpers.paths import REPOSITORY

from modeling_roformer import RoFormerTokenizer
from modeling_roformer.training import (
    NotFinite,
    TrainingError,
    TripletAccuracy,
    TripletCollator,
    load_triplets,
    text_blind,
    tf_idf,
    triplet_accuracy,
    triplet_decisions,
    triplet_results,
)

EXAMPLE = REPOSITORY / "examples" / "triplets.jsonl"
LINES = [json.loads(line) for line in EXAMPLE.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def triplets():
    return load_triplets(EXAMPLE)


@pytest.fixture(scope="module")
def tokenizer():
    return RoFormerTokenizer(str(REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"))


@pytest.mark.parametrize(
    ("field", "value", "facts"),
    [
        ("label", "A", ["line 3: label", "'A'", "B or C"]),
        ("label", None, ["line 3", "label is empty"]),
        ("C", " ", ["line 3", "C is empty"]),
    ],
)
def test_a_bad_row_is_named(tmp_path, field, value, facts):
    lines = [*LINES[:2], LINES[2] | {field: value}]
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with refused(TrainingError, "bad.jsonl", *facts):
        load_triplets(tmp_path / "bad.jsonl")


@pytest.mark.parametrize("scorer", ["cross", "bi"])
def test_a_batch_has_the_pairs_or_the_texts(triplets, tokenizer, scorer):
    batch = TripletCollator(tokenizer, scorer, max_length=16)([triplets[0], triplets[5]])
    assert batch["labels"].tolist() == [triplets[0]["label"], triplets[5]["label"]]
    for row, triplet in enumerate((triplets[0], triplets[5])):
        a, b, c = (triplet[name] for name in "ABC")
        texts = [(a, b), (a, c)] if scorer == "cross" else [(a,), (b,), (c,)]
        for one, text in enumerate(texts):
            expected = tokenizer(*text, truncation=True, max_length=16)
            for name, ids in expected.items():
                assert batch[name][row, one, : len(ids)].tolist() == ids
            assert batch["attention_mask"][row, one].sum() == len(expected["input_ids"])
    assert "labels" not in TripletCollator(tokenizer, scorer)([{name: triplets[0][name] for name in "ABC"}])


def made(*rows):
    return datasets.Dataset.from_list([dict(zip(("A", "B", "C", "label"), row, strict=True)) for row in rows])


def test_text_blind_counts_wins_less_losses():
    known = made(("x", "p", "q", 0), ("y", "q", "p", 1), ("x", "r", "s", 0), ("y", "s", "t", 0))
    # p has won twice, q lost twice, r won once, s lost and won, t lost; x and y count for nothing.
    pairs = (("p", "r"), ("t", "q"), ("s", "r"), ("s", "new"))
    for label in 0, 1:  # it does not look at the label
        assert text_blind(known, made(*(("?", *pair, label) for pair in pairs))).tolist() == [0, 0, 1, -1]


@pytest.mark.parametrize("unit", ["word", "bigram"])
def test_tf_idf_is_the_formula(triplets, unit):
    known, asked = triplets.select(range(16)), triplets.select(range(16, 24))

    def units(text):
        return rjieba.cut(text, False) if unit == "word" else [text[i : i + 2] for i in range(len(text) - 1)]

    texts = {text for triplet in known for text in (triplet[name] for name in "ABC")}
    frequency = Counter(word for text in texts for word in set(units(text)))

    def weights(text):
        counts = Counter(word for word in units(text) if word in frequency)
        vector = {word: n * (np.log((1 + len(texts)) / (1 + frequency[word])) + 1) for word, n in counts.items()}
        length = np.sqrt(sum(weight**2 for weight in vector.values())) or 1
        return {word: weight / length for word, weight in vector.items()}

    def cosine(one, other):
        one, other = weights(one), weights(other)
        return sum(weight * other.get(word, 0) for word, weight in one.items())

    expected = [np.sign(round(cosine(t["A"], t["C"]) - cosine(t["A"], t["B"]), 12)) for t in asked]
    assert tf_idf(known, asked, unit).tolist() == [{-1: 0, 1: 1, 0: -1}[sign] for sign in expected]
    assert len(set(expected)) > 1


def test_decisions_and_their_results():
    scores = np.array([[1.0, 0.5], [0.5, 1.0], [0.5, 0.5]])
    assert triplet_decisions(scores).tolist() == [0, 1, -1]
    assert triplet_results([0, 1, -1, 1], [0, 0, 0, 1]) == [1, 0, 0.5, 1]
    with pytest.raises(NotFinite, match="not finite"):
        triplet_decisions(torch.tensor([[0.5, float("nan")]]).numpy())


def test_accuracy_is_a_metric_of_evaluate():
    predicted = type("Predicted", (), {"predictions": np.eye(3)[:, :2], "label_ids": np.array([0, 0, 1])})
    assert triplet_accuracy(predicted) == {"accuracy": 0.5}
    metric = TripletAccuracy()
    for wrong in ([0.5], [1]), ([1], [-1]), ([float("nan")], [0]):
        metric.add_batch(predictions=wrong[0], references=wrong[1])
        with pytest.raises(ValueError, match="must be one of"):
            metric.compute()
