"""Entities of texts, as transformers' pipeline groups them with the strategy "simple"."""

from collections.abc import Sequence

import numpy as np

from .heads import Head, Item, Result, finite, rounded


class EntityHead(Head):
    """Token classification.

    A token in two chunks of a text has the label from the chunk where it is farther from an edge. Entities are grouped
    once, over the whole text.
    """

    texts = {"field": "text"}
    columns = ("predicted",)
    takes = frozenset({"chunk", "overlap"})
    labels = "entities"

    def kind(self) -> str:
        """Return the name of the head in messages."""
        return "a token classifier"

    def items(self, texts: Sequence[str]) -> list[Item]:
        """Return the text or its chunks."""
        return [self.encoded(texts[0], offsets=True)] if self.options.chunk is None else self.chunks(texts[0])

    def outputs(self, items: Sequence[Item]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the label of each token of each item, and its probability."""
        probabilities = finite(self.model(**self.batch(items)).logits).softmax(-1)
        scores, labels = (tensor.numpy() for tensor in probabilities.max(-1))
        lengths = [len(item.inputs["input_ids"][0]) for item in items]
        return [
            (label[:length].astype(np.int32), score[:length].astype(np.float32))
            for label, score, length in zip(labels, scores, lengths, strict=True)
        ]

    def results(self, texts: Sequence[str], items: Sequence[Item], outputs: Sequence) -> list[Result]:
        """Return the entities with their label, offsets in the text, text and score."""
        tokens, shared = [], self.options.overlap or 0
        for number, (item, (labels, scores)) in enumerate(zip(items, outputs, strict=True)):
            places = [place for place, (start, end) in enumerate(item.facts) if start < end]
            before = (shared + 1) // 2 if number else 0
            after = shared // 2 if number < len(items) - 1 else 0
            for place in places[before : len(places) - after]:
                start, end = item.facts[place]
                token = self.tokenizer.convert_ids_to_tokens(item.inputs["input_ids"][0][place])
                label, score = self.model.config.id2label[int(labels[place])], scores[place]
                tokens.append({"entity": label, "score": score, "word": token, "start": start, "end": end})
        groups = self.loaded.pipeline.group_entities(tokens)
        entities = [
            {
                "label": group["entity_group"],
                "start": int(group["start"]),
                "end": int(group["end"]),
                "text": texts[0][group["start"] : group["end"]],
                "score": rounded(group["score"]),
            }
            for group in groups
            if group["entity_group"] != "O"
        ]
        return [{"predicted": entities}]
