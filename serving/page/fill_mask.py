"""Masks, filled with the whole text as context, and with no more than the sentence that each stands in."""

import re
from dataclasses import dataclass

import torch

from ..errors import ServingError
from .reading import Reading
from .served_model import ServedModel

MASKS = 16  # the likeliest words of a mask are found among all of the vocabulary, which is memory for each
Words = list[tuple[str, float]]  # with their probabilities, best first
# A sentence and what ends it: a full stop is one where a space follows.
_SENTENCE = re.compile(r"(?:[^。！？!?\n.]|\.(?!\s|$))*[。！？!?\n.]?")


@dataclass(frozen=True)
class Filled:
    """The likeliest words of each mask, in the order of the text."""

    text: str
    mask: str
    words: list[Words]
    reading: Reading

    @property
    def parts(self) -> list[str]:
        """The text before, between and after the masks."""
        return self.text.split(self.mask)


@dataclass(frozen=True)
class FilledDocument:
    """A document's masks: filled with all of it as context, and each with its own sentence alone."""

    whole: Filled
    alone: list[Words]


@torch.inference_mode()
def fill(served: ServedModel, text: str, top_k: int = 5) -> Filled:
    """Fill every mask of a text; logits are made for the masks alone, not for thousands of other tokens."""
    tokenizer, mask = served.tokenizer, served.tokenizer.mask_token
    if mask not in served.checked(text):
        raise ServingError(f"there is no {mask} in the text: write {mask} where a word is to be filled in")
    if text.count(mask) > MASKS:
        raise ServingError(
            f"there are {text.count(mask):,} {mask} in the text, more than the {MASKS} that this page fills"
        )
    reading = served.read(text, around=tokenizer.mask_token_id)
    masked = [i for i, token in enumerate(reading.ids) if token == tokenizer.mask_token_id]
    hidden_states = served.model.base_model(served.ids(reading)).last_hidden_state
    probabilities = served.model.cls(hidden_states[:, masked])[0].cpu().double().softmax(-1)
    best = probabilities.topk(min(top_k, probabilities.shape[-1]))
    words = [
        [(tokenizer.decode([token]), value) for token, value in zip(*row, strict=True)]
        for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return Filled(text, mask, words, reading)


def fill_document(served: ServedModel, text: str, top_k: int = 5) -> FilledDocument:
    """Fill the masks of a document twice, to show what the rest of it tells."""
    whole = fill(served, text, top_k)
    alone = [
        words
        for sentence in _SENTENCE.findall(text)
        if whole.mask in sentence
        for words in fill(served, sentence, top_k).words
    ]
    return FilledDocument(whole, alone)
