"""Triplets of texts in JSON Lines, and how they are shared out to training, validation and test."""

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
from ..runs.content import digest_of_text

LABELS = "BC"
LEAST = 10  # triplets of a file, so that no part of one has fewer than two


@dataclass(frozen=True)
class Triplet:
    """Three texts, and which of the last two is closer to the first.

    label: 0 for B, 1 for C.
    place: file and line where it stands.
    """

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
    """Triplets to learn from, to choose the best epoch by, and to measure on."""

    train: list[Triplet]
    validation: list[Triplet]
    test: list[Triplet]

    @property
    def known(self) -> list[Triplet]:
        """All whose labels may be used before the test."""
        return self.train + self.validation

    @property
    def all(self) -> list[Triplet]:
        return self.known + self.test

    def known_texts(self) -> tuple[int, int]:
        """How many of the test's texts stand among the known ones, too, and how many texts it has."""
        known = {text for triplet in self.known for text in triplet.texts.values()}
        asked = [text for triplet in self.test for text in triplet.texts.values()]
        return sum(text in known for text in asked), len(asked)


def read_triplets(path: str | Path) -> list[Triplet]:
    """All triplets of a file, .gz or not: a line is a JSON object with the texts A, B and C, and a label, "B" or "C".

    Raises:
        TrainingError: naming file and line: a key that is missing, no text or an empty one, another label. Also where
            there are fewer than ten triplets, or all have the same label.
        CorpusError: naming file and line: no JSON, or not text.
    """
    path = Path(path)
    triplets = [
        _triplet(record, f"{path}, line {number}") for chunk in read_chunks(path) for number, record in chunk.records()
    ]
    if not triplets:
        raise TrainingError(f"{path} holds no triplet")
    if len(triplets) < LEAST:
        raise TrainingError(
            f"{path} holds {len(triplets)} triplets, too few to share out or to measure on: it takes {LEAST}"
        )
    if len({triplet.label for triplet in triplets}) == 1:
        raise TrainingError(
            f"{path}: every label is {LABELS[triplets[0].label]}, so that who never reads would be right each time: swap B "
            "and C, and the label with them, in half of the triplets"
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
        raise TrainingError(f'{place}: the label is {json.dumps(read["label"])}, but must be "B" or "C"')
    return Triplet(read["A"], read["B"], read["C"], LABELS.index(read["label"]), place)


def digest_of_triplets(triplets: Sequence[Triplet]) -> str:
    """Return the SHA-256 of all texts and labels; how the file is stored has no influence."""
    return digest_of_text(json.dumps([(one.a, one.b, one.c, one.label) for one in triplets]))


def split_triplets(triplets: Sequence[Triplet], shares: Sequence[float], seed: int) -> list[list[Triplet]]:
    """The triplets in parts of these shares, drawn at random by the seed, each in the order of the file.

    >>> train, validation, test = split_triplets(triplets, (0.6, 0.2, 0.2), seed=0)  # as in the paper
    """
    order = np.random.default_rng(seed).permutation(len(triplets))
    ends = np.round(np.cumsum(shares)[:-1] * len(triplets)).astype(int)
    return [[triplets[i] for i in sorted(part)] for part in np.split(order, ends)]


def encode_triplets(
    triplets: Sequence[Triplet], tokenizer: PreTrainedTokenizerBase, scorer: str, length: int
) -> list[dict[str, list]]:
    """Inputs and `label` of each triplet, for Trainer with `DataCollatorForMultipleChoice`.

    Args:
        triplets: what is encoded.
        tokenizer: the model's.
        scorer: "cross" for pairs (A, B) and (A, C), "bi" for the three texts.
        length: most tokens of a pair or of a text; of a pair, the longer text is cut first.

    Raises a TrainingError that names file and line of a text without a token.
    """
    encoded = []
    for triplet in triplets:
        try:
            inputs = encode_triplet(tokenizer, triplet.texts, scorer, length)
        except ValueError as error:
            raise TrainingError(f"{triplet.place}: {error}") from None
        encoded.append({**inputs, "label": triplet.label})
    return encoded
