"""Classes of texts: one, several, or numbers."""

from collections.abc import Sequence

import numpy as np
import torch

from ..errors import ServingError
from .heads import Head, Item, Result, finite, rounded


class ClassHead(Head):
    """Sequence classification, with the function that transformers' pipeline applies to the logits.

    The result of a text in chunks is the mean of theirs, weighted by the tokens that are new in each.
    """

    texts = {"field": "text"}
    takes = frozenset({"chunk", "overlap", "all_scores", "threshold"})

    def __init__(self, loaded, options):
        if "text_pair" in options.texts:
            self.texts = {"field": "text", "text_pair": ""}
            self.takes = self.takes - {"chunk", "overlap"}
        config = loaded.model.config
        self.names = [str(config.id2label[number]) for number in range(config.num_labels)]
        if options.all_scores and len({*self.names}) < len(self.names):
            raise ServingError(
                f"{loaded.folder}/config.json has two classes of one name in id2label: without names of their own, "
                "they have one score (--all-scores, --tune)"
            )
        self.is_number = config.problem_type == "regression"
        self.has_several = config.problem_type == "multi_label_classification"
        self.labels = "numbers" if self.is_number else "several" if self.has_several else "classes"
        if self.is_number:
            self.takes = self.takes - {"all_scores", "threshold"}
            self.columns = ("predicted",)
        elif options.all_scores:
            self.columns = ("predicted", "score", "scores")
        super().__init__(loaded, options)

    def kind(self) -> str:
        """Return the name of the head in messages."""
        what = "numbers" if self.is_number else "several classes" if self.has_several else "one class"
        return f"a classifier of {'pairs of texts' if len(self.texts) > 1 else 'texts'} with {what}"

    def items(self, texts: Sequence[str]) -> list[Item]:
        """Return the text, the pair, or the chunks of the text."""
        return [self.encoded(*texts)] if self.options.chunk is None else self.chunks(texts[0])

    def outputs(self, items: Sequence[Item]) -> list[np.ndarray]:
        """Return the probabilities of each item, in float64 of shape (classes,), or its numbers."""
        logits = finite(self.model(**self.batch(items)).logits)
        if self.is_number:
            return [*logits.numpy()]
        if self.has_several or logits.shape[1] == 1:
            return [*logits.sigmoid().numpy()]
        return [*torch.softmax(logits, dim=-1).numpy()]

    def results(self, texts: Sequence[str], items: Sequence[Item], outputs: Sequence[np.ndarray]) -> list[Result]:
        """Return the best class with its probability, all classes above the threshold, or the number."""
        scores = outputs[0] if len(items) == 1 else np.average(outputs, axis=0, weights=self._new_tokens(items))
        scores = [rounded(score) for score in scores]
        if self.is_number:
            return [{"predicted": scores[0] if len(scores) == 1 else scores}]
        if self.has_several:
            least = 0.5 if self.options.threshold is None else self.options.threshold
            chosen = [
                place for place in np.argsort([-score for score in scores], kind="stable") if scores[place] >= least
            ]
            result = {
                "predicted": [self.names[place] for place in chosen],
                "score": [scores[place] for place in chosen],
            }
        else:
            best = scores.index(max(scores))
            is_sure = self.options.threshold is None or scores[best] >= self.options.threshold
            result = {"predicted": self.names[best] if is_sure else None, "score": scores[best]}
        if self.options.all_scores:
            result["scores"] = dict(zip(self.names, scores, strict=True))
        return [result]

    def _new_tokens(self, items: Sequence[Item]) -> list[int]:
        """Return the number of tokens of each chunk that are not in the one before."""
        shared = [0, *[self.options.overlap or 0] * (len(items) - 1)]
        counts = [sum(start < end for start, end in item.facts) for item in items]
        return [max(1, count - overlap) for count, overlap in zip(counts, shared, strict=True)]
