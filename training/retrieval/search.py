"""Search for the passages that answer questions, and its scores."""

from collections.abc import Iterable

import datasets
import numpy as np
import torch
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from modeling_roformer.output.extras import needs_extra
from modeling_roformer.tokenization.segmentation import JiebaSegmenter

from ..errors import TrainingError
from ..runs.finite_callback import NotFinite

# Metric -> its name and its number of passages in sentence-transformers.
RETRIEVAL_METRICS = {
    "mrr@10": ("mrr", 10),
    "ndcg@10": ("ndcg", 10),
    "recall@10": ("recall", 10),
    "recall@100": ("recall", 100),
}
PASSAGES_PER_QUESTION = 100  # of a search


class PassageSearch(InformationRetrievalEvaluator):
    """sentence-transformers' evaluator of a search for the passages of questions, for its trainer too.

    A question that is asked of several passages has all of them as answers.

    Args:
        questions: with the columns `question` and `passage`, the answer.
        passages: all passages to search, which include the answers; repeated ones count once.
        name: prefix of the metrics: `NAME_cosine_ndcg@10`.
        batch_size: texts that are encoded at once.

    `ranks` has the rank of the best answer of each question in the last search, from 1; 0 if it is not among the first
    100. It is for `paired_bootstrap`.
    """

    def __init__(self, questions: datasets.Dataset, passages: Iterable[str], name: str, batch_size: int = 32):
        numbers = {passage: str(number) for number, passage in enumerate(dict.fromkeys(passages))}
        self.answers: dict[str, set[str]] = {}
        for question, passage in zip(questions["question"], questions["passage"], strict=True):
            self.answers.setdefault(question, set()).add(numbers[passage])
        ids = {question: str(number) for number, question in enumerate(self.answers)}
        super().__init__(
            queries={number: question for question, number in ids.items()},
            corpus={number: passage for passage, number in numbers.items()},
            relevant_docs={ids[question]: found for question, found in self.answers.items()},
            precision_recall_at_k=[10, PASSAGES_PER_QUESTION],
            accuracy_at_k=[1],
            map_at_k=[PASSAGES_PER_QUESTION],
            batch_size=batch_size,
            name=name,
            write_csv=False,
        )
        self.ranks: list[int] = []

    def compute_metrics(self, queries_result_list: list[list[dict]]) -> dict:
        """Compute the metrics of what was found for each question, and keep the ranks. Raise `NotFinite` for NaN."""
        if any(hit["score"] != hit["score"] for found in queries_result_list for hit in found):
            raise NotFinite("a similarity of the model is NaN: use another checkpoint, or a lower learning rate")
        self.ranks = []
        for found, answers in zip(queries_result_list, self.answers.values(), strict=True):
            hits = sorted(found, key=lambda hit: (-hit["score"], hit["corpus_id"]))  # as the metrics do
            order = [hit["corpus_id"] for hit in hits[:PASSAGES_PER_QUESTION]]
            self.ranks.append(next((place for place, number in enumerate(order, 1) if number in answers), 0))
        return super().compute_metrics(queries_result_list)

    def scores_of(self, search) -> dict[str, float]:
        """Return the scores of a search, by the names in `RETRIEVAL_METRICS`.

        `search` is a SentenceTransformer; or a function such as `bm25`, which returns the similarities of questions and
        passages.
        """
        if isinstance(search, torch.nn.Module):
            found = self(search)
            return {name: float(found[f"{self.name}_cosine_{name}"]) for name in RETRIEVAL_METRICS}
        similarities = torch.as_tensor(search(self.queries, self.corpus))
        best = similarities.topk(min(PASSAGES_PER_QUESTION, similarities.shape[1]))
        found = [
            [{"corpus_id": self.corpus_ids[i], "score": score} for i, score in zip(*row, strict=True)]
            for row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        scores = self.compute_metrics(found)
        return {name: float(scores[f"{kind}@k"][k]) for name, (kind, k) in RETRIEVAL_METRICS.items()}


def bm25(questions: list[str], passages: list[str], unit: str = "word", tokenizer=None, max_length=None) -> np.ndarray:
    """Return the scores of BM25, of shape (questions, passages). A term is a word of jieba or, with the unit
    "character", a character. With a tokenizer, passages end after `max_length` tokens, which an encoder reads."""
    with needs_extra("retrieval", TrainingError):
        import bm25s
    if tokenizer:
        read = tokenizer(passages, truncation=True, max_length=max_length, return_offsets_mapping=True)
        ends = [max(offsets)[1] for offsets in read["offset_mapping"]]
        passages = [passage[:end] for passage, end in zip(passages, ends, strict=True)]
    split = JiebaSegmenter() if unit == "word" else list
    index = bm25s.BM25()
    index.index([[*split(passage)] for passage in passages], show_progress=False)
    return np.stack([index.get_scores([*split(question)]) for question in questions])
