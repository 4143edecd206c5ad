"""Baselines without training. Each returns a decision for each triplet: 0 for B, 1 for C, -1 for a tie."""

from collections import Counter
from collections.abc import Callable

import datasets
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from modeling_roformer.tokenization.segmentation import JiebaSegmenter

from .decisions import triplet_decisions


def text_blind(known: datasets.Dataset, asked: datasets.Dataset) -> np.ndarray:
    """Decide without reading the texts: prefer the candidate with more wins minus losses in the known triplets.

    An accuracy above one half comes from how the triplets were made, not from the texts: a text that is in several
    triplets wins or loses most of them. For the arguments, see `load_triplets`.
    """
    wins = Counter()
    for triplet in known:
        closer, further = (triplet["B"], triplet["C"]) if triplet["label"] == 0 else (triplet["C"], triplet["B"])
        wins[closer] += 1
        wins[further] -= 1
    return triplet_decisions(np.array([(wins[triplet["B"]], wins[triplet["C"]]) for triplet in asked]).reshape(-1, 2))


def tf_idf(known: datasets.Dataset, asked: datasets.Dataset, unit: str = "word") -> np.ndarray:
    """Decide by the cosine of TF-IDF vectors, with the document frequencies of the known texts.

    A term is a word of jieba or, with the unit "bigram", two consecutive characters. For the other arguments, see
    `load_triplets`.
    """
    how = {"analyzer": JiebaSegmenter()} if unit == "word" else {"analyzer": "char", "ngram_range": (2, 2)}
    vectorizer = TfidfVectorizer(**how)
    vectorizer.fit(sorted({text for name in "ABC" for text in known[name]}))
    a, b, c = (vectorizer.transform(asked[name]) for name in "ABC")
    scores = [np.asarray(a.multiply(other).sum(axis=1)).ravel() for other in (b, c)]  # rows have length 1
    return triplet_decisions(np.stack(scores, axis=1))


# Name of a baseline -> its decisions on the second triplets, from the first ones.
TRIPLET_BASELINES: dict[str, Callable[[datasets.Dataset, datasets.Dataset], np.ndarray]] = {
    "text-blind: wins in training": text_blind,
    "TF-IDF, words": tf_idf,
    "TF-IDF, pairs of characters": lambda known, asked: tf_idf(known, asked, "bigram"),
}
