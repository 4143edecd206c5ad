"""Mask filling, with the whole text or only the mask's sentence as context."""

import re
from dataclasses import dataclass

import torch

from ..errors import ServingError
from .served_model import EncodedText, ServedModel

MAX_MASKS = 16  # each mask needs memory for logits over the whole vocabulary
Words = list[tuple[str, float]]  # with their probabilities, best first
# A sentence with the mark that ends it. A full stop ends one only before a space.
_SENTENCE = re.compile(r"(?:[^。！？!?\n.]|\.(?!\s|$))*[。！？!?\n.]?")


@dataclass(frozen=True)
class Filled:
    """Best words of each mask, in the order of the text."""

    text: str
    mask: str
    words: list[Words]
    encoded: EncodedText


@torch.inference_mode()
def fill(served: ServedModel, text: str, top_k: int = 5) -> Filled:
    """Fill every mask of a text; compute logits for the masks only."""
    tokenizer, mask = served.tokenizer, served.tokenizer.mask_token
    if mask not in served.checked(text):
        raise ServingError(f"the text has no {mask}: write {mask} in place of the missing word")
    if text.count(mask) > MAX_MASKS:
        raise ServingError(f"the text has {text.count(mask):,} {mask}; this page fills at most {MAX_MASKS}")
    encoded = served.encode(text, around=tokenizer.mask_token_id)
    masked = [i for i, token in enumerate(encoded.ids) if token == tokenizer.mask_token_id]
    hidden_states = served.model.base_model(served.ids(encoded)).last_hidden_state
    probabilities = served.model.cls(hidden_states[:, masked])[0].cpu().double().softmax(-1)
    best = probabilities.topk(min(top_k, probabilities.shape[-1]))
    words = [
        [(tokenizer.decode([token]), value) for token, value in zip(*row, strict=True)]
        for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return Filled(text, mask, words, encoded)


def fill_document(served: ServedModel, text: str, top_k: int = 5) -> tuple[Filled, list[Words]]:
    """Fill the masks of a document: with the whole document as context, and with each mask's sentence alone."""
    whole = fill(served, text, top_k)
    sentences = [sentence for sentence in _SENTENCE.findall(text) if whole.mask in sentence]
    return whole, [words for sentence in sentences for words in fill(served, sentence, top_k).words]
