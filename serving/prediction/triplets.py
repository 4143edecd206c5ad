"""Triplets: which of two texts, B or C, is closer to a third, A."""

from collections.abc import Sequence

import numpy as np

from modeling_roformer.triplet_matching import longest_input
from modeling_roformer.triplet_pipeline import encode_triplet

from .heads import Head, Item, Result, finite, rounded


class TripletHead(Head):
    """Triplet matching, as the pipeline "triplet-matching" computes it."""

    texts = {"A": "A", "B": "B", "C": "C"}

    def kind(self) -> str:
        """Return the name of the head in messages."""
        return "a triplet matcher"

    def items(self, texts: Sequence[str]) -> list[Item]:
        """Return the two pairs or the three texts of a triplet."""
        longest = longest_input(self.tokenizer, self.options.max_length)
        triplet = dict(zip("ABC", texts, strict=True))
        encoded = encode_triplet(self.tokenizer, triplet, self.model.config.triplet_scorer, longest)
        inputs = {name: rows for name, rows in encoded.items() if name in ("input_ids", "token_type_ids")}
        return [Item(inputs, truncated=max(map(len, inputs["input_ids"])) >= longest)]

    def outputs(self, items: Sequence[Item]) -> list[np.ndarray]:
        """Return the probabilities of B and C for each triplet, of shape (2,)."""
        inputs = {name: tensor.unflatten(0, (len(items), -1)) for name, tensor in self.batch(items).items()}
        return [*finite(self.model(**inputs).logits).softmax(-1).numpy()]

    def results(self, texts: Sequence[str], items: Sequence[Item], outputs: Sequence[np.ndarray]) -> list[Result]:
        """Return B or C, and its probability."""
        [probabilities] = outputs
        best = int(probabilities.argmax())
        return [{"predicted": "BC"[best], "score": rounded(probabilities[best])}]
