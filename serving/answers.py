"""Answers to questions in documents of any length, which are read in overlapping windows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .errors import ServingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_ANSWER_LENGTH = 30  # tokens
WINDOW = 512  # tokens of a window, question included
OVERLAP = 128  # tokens that a window shares with the next


@dataclass(frozen=True)
class Window:
    """A question and a part of a document, as inputs of a model.

    `places` are those of the document's tokens, and `offsets` their characters in the document.
    """

    inputs: dict[str, list[int]]
    places: list[int]
    offsets: list[tuple[int, int]]


def windows_of(
    tokenizer: "PreTrainedTokenizerBase", question: str, context: str, longest: int, overlap: int | None = None
) -> list[Window]:
    """Return the windows of a document, each with the question before it.

    Args:
        longest: maximum tokens of a window, special tokens included.
        overlap: tokens of the document that neighbours share; by default `OVERLAP`, or half a window if that is less.

    Raises:
        ServingError: the question leaves no room for the document, or for the overlap.
    """
    question_tokens = len(tokenizer(question, add_special_tokens=False, verbose=False)["input_ids"])
    room = longest - question_tokens - tokenizer.num_special_tokens_to_add(pair=True)
    if room < 1:
        raise ServingError(
            f"the question has {question_tokens} tokens and leaves no room for the document: a model reads {longest} "
            "at once"
        )
    if overlap is not None and overlap >= room:
        raise ServingError(
            f"overlap is {overlap}, but the question leaves {room} of {longest} tokens for the document: let windows "
            "share less"
        )
    encoded = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=longest,
        stride=min(OVERLAP, room // 2) if overlap is None else overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        verbose=False,
    )
    windows = []
    for number, offsets in enumerate(encoded["offset_mapping"]):
        inputs = {name: encoded[name][number] for name in tokenizer.model_input_names if name in encoded}
        places = [place for place, part in enumerate(encoded.sequence_ids(number)) if part == 1]
        windows.append(Window(inputs, places, [tuple(offsets[place]) for place in places]))
    return windows


def best_answers(
    windows: Iterable[tuple[Sequence[tuple[int, int]], torch.Tensor]], number: int
) -> list[tuple[int, int, float]]:
    """Return the start, the end and the score of the best answers of a document, best first.

    Start and end probabilities are computed over the tokens of all windows, so that scores of different windows are
    comparable. The score is their product.

    Args:
        windows: for each window the characters of the document's tokens, and their start and end logits, of shape
            (2, tokens).
        number: maximum number of answers.
    """
    windows = [(offsets, logits.cpu().double()) for offsets, logits in windows]  # not every GPU has float64
    total = torch.cat([logits for _, logits in windows], dim=1).logsumexp(1, keepdim=True)
    scores: dict[tuple[int, int], float] = {}
    for offsets, logits in windows:
        start, end = (logits - total).exp()
        products = torch.outer(start, end).triu().tril(MAX_ANSWER_LENGTH - 1)
        best = products.flatten().topk(min(4 * number, products.numel()))
        for score, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            first, last = divmod(index, len(offsets))
            if score > 0:
                span = (offsets[first][0], offsets[last][1])
                scores[span] = max(scores.get(span, 0.0), score)
    found = sorted(scores.items(), key=lambda item: -item[1])[:number]
    return [(start, end, score) for (start, end), score in found]
