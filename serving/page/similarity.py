"""Similarity of texts: cosines of their vectors, and triplets."""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from ..errors import ServingError
from ..prompts import DEFAULT, prompt_length
from .served_model import EncodedText, ServedModel


@dataclass(frozen=True)
class Triplet:
    """Result of a triplet."""

    closer: str | None  # to A: "B", "C", or None if they are equally close
    scores: dict[str, float]  # of B and C
    are_probabilities: bool  # otherwise cosines
    encoded_texts: list[EncodedText]


@torch.inference_mode()
def vectors(
    served: ServedModel, texts: list[str], names: list[str], prompts: list[str] | None = None
) -> tuple[torch.Tensor, list[EncodedText]]:
    """Return normalised vectors in float32, of shape (n, width), with the model's pooling.

    Texts are run one at a time, so that memory does not grow with their number.

    Args:
        names: names of the texts in messages.
        prompts: a prompt before each text; the default is the prompt for texts that are neither queries nor documents.
    """
    prompts = prompts or [served.prompts[DEFAULT]] * len(texts)
    encoded_texts = [
        served.encode(prompt + served.checked(text, name), name=name)
        for prompt, text, name in zip(prompts, texts, names, strict=True)
    ]
    rows = []
    for encoded, prompt in zip(encoded_texts, prompts, strict=True):
        ids = served.ids(encoded)
        outputs, length = served.model.base_model(ids), prompt_length(served.tokenizer, prompt)
        rows.append(served.sentence_vectors(outputs, ids, torch.ones_like(ids), length))
    normalised = F.normalize(torch.cat(rows).cpu(), dim=-1)
    _check_finite(normalised.sum().item())
    return normalised, encoded_texts


def _check_finite(value: float) -> None:
    if not math.isfinite(value):
        raise ServingError("the model's outputs are not finite: check its weights")


def _cosines(rows: torch.Tensor) -> torch.Tensor:
    """Return the cosines of the first vector with the others. In float64, cosines of equal vectors are equal."""
    return (rows[1:].double() @ rows[0].double()).float()


def triplet(served: ServedModel, a: str, b: str, c: str) -> Triplet:
    """Decide whether text A is closer to B or to C."""
    texts = dict(zip(("text A", "text B", "text C"), (a, b, c), strict=True))
    if served.is_matcher and served.model.config.triplet_scorer == "cross":
        return _matched(served, texts)
    rows, encoded_texts = vectors(served, list(texts.values()), list(texts))
    scores = dict(zip("BC", _cosines(rows).tolist(), strict=True))
    return Triplet(_larger(scores), scores, False, encoded_texts)


def _matched(served: ServedModel, texts: dict[str, str]) -> Triplet:
    """Score the pairs (A, B) and (A, C) jointly, as in the paper; truncation shortens the longer text first."""
    a, b, c = (served.encode(text, name=name) for name, text in texts.items())
    parts = dict(zip("ABC", (encoded.part for encoded in (a, b, c)), strict=True))
    output = served.pipeline(parts, max_length=served.longest)
    _check_finite(output["score"])
    other = {"B": "C", "C": "B"}[output["label"]]
    scores = {output["label"]: output["score"], other: 1 - output["score"]}
    added = served.tokenizer.num_special_tokens_to_add(pair=True)
    pairs = []
    for name, pair in (("A + B", (a, b)), ("A + C", (a, c))):
        tokens = sum(encoded.tokens for encoded in pair)
        pairs.append(EncodedText(name, [], [], tokens, 0, max(tokens + added - served.longest, 0), ""))
    return Triplet(_larger(scores), scores, True, pairs)


def _larger(scores: dict[str, float]) -> str | None:
    # Equal texts differ by rounding in different rows of a batch, on some processors.
    return None if abs(scores["B"] - scores["C"]) < 1e-6 else max(scores, key=scores.get)


def rank(served: ServedModel, query: str, cases: str) -> tuple[list[str], list[float], list[EncodedText]]:
    """Rank the cases, one per line, by their cosine with the query: return cases, cosines, and what was read."""
    texts = [served.checked(query, "the query"), *served.checked_lines(cases, "the cases")]
    names = ["the query", *(f"case {i}" for i in range(1, len(texts)))]
    prompts = [served.prompts["query"], *[served.prompts["document"]] * (len(texts) - 1)]
    rows, encoded_texts = vectors(served, texts, names, prompts)
    cosines, order = _cosines(rows).sort(descending=True, stable=True)
    return [texts[1 + i] for i in order.tolist()], cosines.tolist(), encoded_texts


def compare(served: ServedModel, sentences: str) -> tuple[list[str], list[list[float]], list[EncodedText]]:
    """Return the sentences, one per line, the matrix of their cosines, and what was read."""
    texts = served.checked_lines(sentences, "the sentences")
    if len(texts) < 2:
        raise ServingError("the sentences are only 1 line; expected at least 2, one sentence per line")
    rows, encoded_texts = vectors(served, texts, [f"sentence {i}" for i in range(1, len(texts) + 1)])
    return texts, (rows @ rows.T).tolist(), encoded_texts
