"""Baselines without training on triplets. Each returns one decision per triplet: 0 for B, 1 for C, -1 for a tie."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from transformers import PreTrainedTokenizerBase

from ...tokenization.segmentation import JiebaSegmenter
from ...triplet_matching import RoFormerForTripletMatching
from ..errors import TrainingError
from ..runs.finite import NotFinite
from .reading import Triplet


def decide(scores: np.ndarray) -> np.ndarray:
    """Return the decisions from scores for B and C, of shape (n, 2). Raise NotFinite if a score is not finite."""
    if not np.isfinite(scores).all():
        raise NotFinite("the model's scores are not finite: a lower learning rate may help")
    b, c = np.asarray(scores).T
    return np.where(b == c, -1, (c > b).astype(int))


def text_blind(known: Sequence[Triplet], asked: Sequence[Triplet]) -> np.ndarray:
    """Decide without reading the texts: prefer the candidate with more wins minus losses in the known triplets.

    An accuracy above one half comes from how the triplets were made, not from the texts: a text that is in several
    triplets wins or loses most of them.
    """
    wins = Counter()
    for triplet in known:
        closer, further = (triplet.b, triplet.c) if triplet.label == 0 else (triplet.c, triplet.b)
        wins[closer] += 1
        wins[further] -= 1
    return decide(np.array([(wins[triplet.b], wins[triplet.c]) for triplet in asked]).reshape(-1, 2))


def tf_idf(known: Sequence[Triplet], asked: Sequence[Triplet], unit: str = "word") -> np.ndarray:
    """Decide by the cosine of TF-IDF vectors, with the document frequencies of the known texts.

    A term is a word of jieba or, with the unit "bigram", two consecutive characters.
    """
    how = {"analyzer": JiebaSegmenter()} if unit == "word" else {"analyzer": "char", "ngram_range": (2, 2)}
    vectorizer = TfidfVectorizer(**how)
    try:
        vectorizer.fit(sorted({text for triplet in known for text in triplet.texts.values()}))
    except ValueError:  # sklearn's "empty vocabulary"
        raise TrainingError("the training texts are too short for TF-IDF: leave out --baselines") from None
    a, b, c = (vectorizer.transform([triplet.texts[name] for triplet in asked]) for name in "ABC")
    scores = [np.asarray(a.multiply(other).sum(axis=1)).ravel() for other in (b, c)]  # rows have length 1
    return decide(np.stack(scores, axis=1))


def mean_vectors(
    model: RoFormerForTripletMatching, tokenizer: PreTrainedTokenizerBase, triplets: Sequence[Triplet], length: int
) -> dict[str, torch.Tensor]:
    """Return a vector of length 1 for each text: the mean of the hidden states over its first `length` tokens.

    The model has `triplet_scorer="bi"`, which adds no weights to the pre-trained ones.
    """
    texts = sorted({text for triplet in triplets for text in triplet.texts.values()})
    vectors = model.encode(texts, tokenizer, batch_size=8, max_length=length).double()
    return dict(zip(texts, vectors, strict=True))


def nearest(vectors: Mapping[str, torch.Tensor], asked: Sequence[Triplet]) -> np.ndarray:
    """Decide by the cosine of vectors of length 1."""
    scores = [[(vectors[t.a] @ vectors[other]).item() for other in (t.b, t.c)] for t in asked]
    return decide(np.array(scores).reshape(-1, 2))


Baseline = Callable[[Sequence[Triplet], Sequence[Triplet]], np.ndarray]
# Baselines that need no model.
TEXT_BLIND = "text-blind: wins in training"
WITHOUT_MODEL: dict[str, Baseline] = {
    TEXT_BLIND: text_blind,
    "TF-IDF, words": tf_idf,
    "TF-IDF, pairs of characters": lambda known, asked: tf_idf(known, asked, "bigram"),
}
