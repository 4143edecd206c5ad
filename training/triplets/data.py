"""Triplets of texts: loading them, and batches for `RoFormerForTripletMatching`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets
import torch
from transformers import PreTrainedTokenizerBase

from modeling_roformer.triplet_pipeline import encode_triplet

from ..errors import TrainingError
from ..runs.data import load_texts, place_of

COLUMNS = ("A", "B", "C", "label")
LABELS = ("B", "C")


def load_triplets(
    source: str | Path,
    columns: Sequence[str] = COLUMNS,
    split: str = "train",
    *,
    named_by: Sequence[str] = (),
    **options,
) -> datasets.Dataset:
    """Load triplets into the columns A, B, C (strings), label (0 if B is closer to A, 1 if C is) and row (from 1).

    Args:
        columns: names of the columns of A, B, C and the label, which is "B" or "C".
        source, split, named_by, options: see `load_texts`.

    Raises a TrainingError that names the source, and the file and the row if only one is wrong.
    """
    triplets = load_texts(source, dict(zip(COLUMNS, columns, strict=True)), split, named_by=named_by, **options)
    if wrong := next((label for label in triplets["label"] if label not in LABELS), None):
        place = place_of(source, columns[-1], lambda label: label not in LABELS, split, **options)
        raise TrainingError(f"{place} is {wrong!r}; expected B or C, the closer text")
    triplets = triplets.add_column("row", [*range(1, len(triplets) + 1)])
    return triplets.cast_column("label", datasets.ClassLabel(names=list(LABELS)))


@dataclass
class TripletCollator:
    """Collator of triplets for Trainer, with `remove_unused_columns=False`.

    Args:
        tokenizer: the model's.
        scorer: the model's `triplet_scorer`: "cross" for the pairs (A, B) and (A, C), "bi" for the three texts.
        max_length: maximum number of tokens of a pair or a text; see `longest_input`.

    A call takes dicts with the texts "A", "B", "C" and, for training, a "label". It returns tensors of shape
    (triplets, 2 pairs or 3 texts, tokens), padded on the right, and `labels` of shape (triplets,).

    >>> Trainer(model, arguments, data_collator=TripletCollator(tokenizer, model.config.triplet_scorer, 512), …)
    """

    tokenizer: PreTrainedTokenizerBase
    scorer: str = "cross"
    max_length: int | None = None

    def __call__(self, triplets: Sequence[dict]) -> dict[str, torch.Tensor]:
        encoded = [encode_triplet(self.tokenizer, triplet, self.scorer, self.max_length) for triplet in triplets]
        rows = {name: [row for one in encoded for row in one[name]] for name in encoded[0]}
        inputs = self.tokenizer.pad(rows, return_tensors="pt", padding_side="right")
        batch = {name: value.unflatten(0, (len(triplets), -1)) for name, value in inputs.items()}
        if "label" in triplets[0]:
            batch["labels"] = torch.tensor([triplet["label"] for triplet in triplets])
        return batch
