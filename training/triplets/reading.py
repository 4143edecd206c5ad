"""Triplets of texts: reading JSON Lines, splitting and encoding."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...tokenization.vocabulary_maker.corpus import read_chunks
from ...triplet_matching import check_text
from ...triplet_pipeline import encode_triplet
from ..errors import TrainingError
from ..runs.digests import digest_of_text

LABELS = "BC"
LEAST = 10  # triplets in a file, so that each split has at least two


@dataclass(frozen=True)
class Triplet:
    """Three texts, and a label: 0 if B is closer to A, 1 if C is. `place` is its file and line."""

    a: str
    b: str
    c: str
    label: int
    place: str

    @property
    def texts(self) -> dict[str, str]:
        return {"A": self.a, "B": self.b, "C": self.c}


@dataclass(frozen=True)
class Split:
    """Triplets for training, for choosing the best epoch, and for the test."""

    train: list[Triplet]
    validation: list[Triplet]
    test: list[Triplet]

    @property
    def known(self) -> list[Triplet]:
        """All triplets whose labels may be used before the test."""
        return self.train + self.validation

    def test_overlap(self) -> tuple[int, int]:
        """Return how many texts of the test are also known texts, and how many texts the test has."""
        known = {text for triplet in self.known for text in triplet.texts.values()}
        asked = [text for triplet in self.test for text in triplet.texts.values()]
        return sum(text in known for text in asked), len(asked)


def read_triplets(path: str | Path) -> list[Triplet]:
    """Read the triplets of a JSON Lines file, .gz or not: objects with the texts A, B and C, and the label "B" or "C".

    Raises an error that names file and line: a CorpusError for a file that is not UTF-8 or JSON, a TrainingError for a missing
    key, an empty text or an invalid label. Also for fewer than ten triplets, or the same label in all of them.
    """
    path = Path(path)
    triplets = [
        _triplet(record, f"{path}, line {number}") for chunk in read_chunks(path) for number, record in chunk.records()
    ]
    if not triplets:
        raise TrainingError(f"{path} has no triplet")
    if len(triplets) < LEAST:
        raise TrainingError(f"{path} has {len(triplets)} triplets; expected at least {LEAST}")
    if len({triplet.label for triplet in triplets}) == 1:
        raise TrainingError(
            f"{path}: every label is {LABELS[triplets[0].label]}: swap B and C, and change the label, in half of the triplets"
        )
    return triplets


def _triplet(read: dict, place: str) -> Triplet:
    if missing := [key for key in ("A", "B", "C", "label") if key not in read]:
        raise TrainingError(f"{place}: the key {missing[0]} is missing")
    try:
        for name in "ABC":
            check_text(read[name], f'text "{name}"')
    except ValueError as error:
        raise TrainingError(f"{place}: {error}") from None
    if not isinstance(read["label"], str) or read["label"] not in ("B", "C"):
        raise TrainingError(f'{place}: the label is {json.dumps(read["label"])}; expected "B" or "C"')
    return Triplet(read["A"], read["B"], read["C"], LABELS.index(read["label"]), place)


def digest_of_triplets(triplets: Sequence[Triplet]) -> str:
    """Return the SHA-256 of all texts and labels, which does not depend on how the file is stored."""
    return digest_of_text(json.dumps([(one.a, one.b, one.c, one.label) for one in triplets]))


def split_triplets(triplets: Sequence[Triplet], shares: Sequence[float], seed: int) -> list[list[Triplet]]:
    """Split triplets at random into parts of given shares, each in the order of the file.

    >>> train, validation, test = split_triplets(triplets, (0.6, 0.2, 0.2), seed=0)  # as in the paper
    """
    order = np.random.default_rng(seed).permutation(len(triplets))
    ends = np.round(np.cumsum(shares)[:-1] * len(triplets)).astype(int)
    return [[triplets[i] for i in sorted(part)] for part in np.split(order, ends)]


def encode_triplets(
    triplets: Sequence[Triplet], tokenizer: PreTrainedTokenizerBase, scorer: str, length: int
) -> list[dict[str, list]]:
    """Return inputs and `label` of each triplet, for Trainer with `DataCollatorForMultipleChoice`.

    The inputs are the pairs (A, B) and (A, C) for the scorer "cross", or the three texts for "bi", with at most `length` tokens
    each. In a pair, the longer text is truncated first.

    Raises a TrainingError that names file and line of a text without tokens.
    """
    encoded = []
    for triplet in triplets:
        try:
            inputs = encode_triplet(tokenizer, triplet.texts, scorer, length)
        except ValueError as error:
            raise TrainingError(f"{triplet.place}: {error}") from None
        encoded.append({**inputs, "label": triplet.label})
    return encoded
