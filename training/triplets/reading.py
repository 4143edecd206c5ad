"""Triplets of texts: reading, splitting and encoding."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...triplet_pipeline import encode_triplet
from ..errors import TrainingError
from ..runs.digests import digest_of_text
from ..runs.tables import UNNAMED, labels_in, listed, pair_in, read_table, require_columns, texts_in
from .arguments import COLUMNS

LABELS = ("B", "C")
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


def read_triplets(path: str | Path, columns: Sequence[str] = tuple(COLUMNS.values())) -> list[Triplet]:
    """Read triplets from a .csv, .tsv, .jsonl or .parquet file: three texts, and the label "B" or "C".

    Args:
        path: see `read_table`; a file with TABs may lack the names of the columns.
        columns: columns of A, B, C and the label.

    Raises a CorpusError or a TrainingError that names the file, and the line if only one is wrong: a file that cannot
    be read, a missing column, an empty text or an invalid label. Also for fewer than ten triplets, or the same label in
    all of them.
    """

    def is_header(fields: list[str]) -> bool:
        return not fields[-1].isdecimal() and not (len(fields) == len(columns) and fields[-1] in LABELS)

    table = read_table(path, is_header=is_header)
    if table.empty:
        raise TrainingError(f"{path} has no triplet")
    if len(table.columns) == len(columns) and table.columns[0] == f"{UNNAMED} 1":
        table.columns = columns
    if [name for name in columns if name not in table] == [columns[-1]]:
        raise TrainingError(
            f"{path} has no column {columns[-1]!r} (--label), only {listed(table.columns)}. If B is always the closer "
            "text, as in CAIL's original files, give each triplet the label B, and swap B and C and the label in half "
            "of them: docs/triplets.md"
        )
    pair = pair_in(table.columns) or (table.columns[:2] if [*table] == [f"{UNNAMED} {n}" for n in (1, 2, 3)] else ())
    if columns[0] not in table and len(pair):
        raise TrainingError(
            f"{path} has sentence pairs, not triplets: examples/finetune_classification.py learns from them, with "
            f"--text {pair[0]!r} --text-pair {pair[1]!r}"
        )
    require_columns(table, dict(zip(COLUMNS, columns, strict=True)), path)
    places = [f"{path}, {table.index.name} {number}" for number in table.index]
    texts = (texts_in(table, name, path) for name in columns[:-1])
    values = zip(*texts, labels_in(table, columns[-1], path), places, strict=True)
    triplets = [_triplet(*row) for row in values]
    if len(triplets) < LEAST:
        raise TrainingError(f"{path} has {len(triplets)} triplets; expected at least {LEAST}")
    if len({triplet.label for triplet in triplets}) == 1:
        raise TrainingError(
            f"{path}: every label is {LABELS[triplets[0].label]}: swap B and C, and change the label, in half of the "
            "triplets"
        )
    return triplets


def _triplet(a: str, b: str, c: str, label: str, place: str) -> Triplet:
    if label not in LABELS:
        raise TrainingError(f'{place}: the label is {json.dumps(label)}; expected "B" or "C"')
    return Triplet(a, b, c, LABELS.index(label), place)


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

    The inputs are the pairs (A, B) and (A, C) for the scorer "cross", or the three texts for "bi", with at most
    `length` tokens each. In a pair, the longer text is truncated first.

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
