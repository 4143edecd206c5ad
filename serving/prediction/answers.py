"""Answers to questions in texts."""

from collections.abc import Sequence

import torch

from ..answers import WINDOW, Window, best_answers, windows_of
from .heads import Head, Item, Result, finite, rounded


class AnswerHead(Head):
    """Question answering. A text is read in windows, as on the page; their probabilities are comparable."""

    texts = {"question": "question", "context": "context"}
    columns = ("predicted", "score", "start", "end")
    takes = frozenset({"chunk", "overlap"})
    labels = "answers"

    def kind(self) -> str:
        """Return the name of the head in messages."""
        return "question answering"

    def items(self, texts: Sequence[str]) -> list[Item]:
        """Return the windows of a text, each with the question."""
        question, context = texts
        longest = self.options.chunk or min(self.longest, WINDOW)
        windows = windows_of(self.tokenizer, question, context, longest, self.options.overlap)
        if not windows[0].places:
            raise ValueError("the text contains no token")
        names = ("input_ids", "token_type_ids")
        return [
            Item({name: [window.inputs[name]] for name in names if name in window.inputs}, window) for window in windows
        ]

    def outputs(self, items: Sequence[Item]) -> list[torch.Tensor]:
        """Return the start and end logits of the text's tokens in each window, of shape (2, tokens)."""
        outputs = self.model(**self.batch(items))
        logits = finite(torch.stack([outputs.start_logits, outputs.end_logits], dim=1)).float()
        return [of_window[:, item.facts.places].clone() for of_window, item in zip(logits, items, strict=True)]

    def results(self, texts: Sequence[str], items: Sequence[Item], outputs: Sequence[torch.Tensor]) -> list[Result]:
        """Return the best answer, its score, and its place in the text."""
        windows: list[Window] = [item.facts for item in items]
        offsets = [window.offsets for window in windows]
        for start, end, score in best_answers(zip(offsets, outputs, strict=True), 1):
            return [{"predicted": texts[1][start:end], "score": rounded(score), "start": start, "end": end}]
        return [{"predicted": None, "score": 0.0, "start": None, "end": None}]  # the probabilities underflow
