"""Pipeline for extractive question answering, which transformers 5 has removed."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase
from transformers.pipelines.base import ChunkPipeline

QUESTION_ANSWERING = "extractive-question-answering"


class ExtractiveQuestionAnsweringPipeline(ChunkPipeline):
    """Pipeline that finds the answer to a question in a text of any length.

    A context longer than `max_seq_len` tokens is split into overlapping windows. Start and end probabilities are
    computed over the tokens of all windows, so that scores of different windows are comparable.

    Args (of a call):
        question, context: texts; or one dict, or a list of dicts, with these two keys.
        top_k: number of answers, best first; above 1, a list is returned.
        max_answer_len: longest answer, in tokens.
        max_seq_len: longest window, in tokens, including question and special tokens.
        doc_stride: number of tokens that a window shares with the next.
        handle_impossible_answer: allow an empty answer, if the first token ([CLS]) scores highest.

    Returns:
        `{"score": float, "start": int, "end": int, "answer": str}` with `context[start:end] == answer`.

    ```python
    >>> qa = pipeline("extractive-question-answering", model=DIR)
    >>> qa(question="谁提出了旋转位置编码？", context="旋转位置编码由苏剑林提出。")["answer"]
    '苏剑林'
    ```
    """

    if TYPE_CHECKING:
        tokenizer: PreTrainedTokenizerBase

    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False

    def __call__(self, inputs=None, *, question=None, context=None, **kwargs):
        if inputs is None:
            inputs = {"question": question, "context": context}
        elif question is not None or context is not None:
            raise ValueError("expected either a dict (or a list of dicts) or question= and context=, and not both")
        return super().__call__(inputs, **kwargs)

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        max_answer_len: int | None = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        handle_impossible_answer: bool | None = None,
    ):
        for name, value in (("top_k", top_k), ("max_answer_len", max_answer_len)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1")
        windows = {"max_seq_len": max_seq_len, "doc_stride": doc_stride}
        answers = {"top_k": top_k, "max_answer_len": max_answer_len}
        answers["handle_impossible_answer"] = handle_impossible_answer
        preprocessing, postprocessing = (
            {name: value for name, value in given.items() if value is not None} for given in (windows, answers)
        )
        return preprocessing, {}, postprocessing

    def preprocess(self, example: dict, max_seq_len: int | None = None, doc_stride: int | None = None):
        question, context = _texts(example)
        max_seq_len = min(self.tokenizer.model_max_length, 512) if max_seq_len is None else max_seq_len
        question_len = len(self.tokenizer(question, add_special_tokens=False)["input_ids"])
        room = max_seq_len - question_len - self.tokenizer.num_special_tokens_to_add(pair=True)
        if room < 1:
            raise ValueError(
                f"the question has {question_len} tokens and leaves no room for the context: raise max_seq_len, "
                f"which is {max_seq_len}"
            )
        doc_stride = min(128, room // 2) if doc_stride is None else doc_stride
        if not 0 <= doc_stride < room:
            raise ValueError(
                f"doc_stride is {doc_stride}, but must be from 0 to {room - 1} with this question and max_seq_len"
            )
        windows = self.tokenizer(
            question,
            context,
            truncation="only_second",
            max_length=max_seq_len,
            stride=doc_stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for i, offsets in enumerate(windows["offset_mapping"]):
            tensors = {
                name: torch.tensor([windows[name][i]]) for name in self.tokenizer.model_input_names if name in windows
            }
            in_context = [part == 1 for part in windows.sequence_ids(i)]
            yield {
                **tensors,
                "context": context,
                "offsets": [offset if inside else None for offset, inside in zip(offsets, in_context, strict=True)],
                "is_last": i == len(windows["input_ids"]) - 1,
            }

    def _forward(self, window: dict):
        rest = {name: window.pop(name) for name in ("context", "offsets", "is_last")}
        outputs = self.model(**window)
        return {"start_logits": outputs.start_logits, "end_logits": outputs.end_logits, **rest}

    def postprocess(
        self, windows: list[dict], top_k: int = 1, max_answer_len: int = 30, handle_impossible_answer: bool = False
    ):
        context = windows[0]["context"]
        inside = [np.array([offset is not None for offset in window["offsets"]]) for window in windows]
        if handle_impossible_answer:
            for mask in inside:
                mask[0] = True
        padded_left = self.tokenizer.padding_side == "left"
        starts = _probabilities([window["start_logits"] for window in windows], inside, padded_left)
        ends = _probabilities([window["end_logits"] for window in windows], inside, padded_left)

        scores: dict[tuple[int, int], float] = {}
        for window, start, end in zip(windows, starts, ends, strict=True):
            if handle_impossible_answer:
                scores[0, 0] = max(scores.get((0, 0), 0.0), float(start[0] * end[0]))
                start[0] = end[0] = 0.0
            # An answer has from 1 to max_answer_len tokens.
            products = np.tril(np.triu(np.outer(start, end)), max_answer_len - 1)
            best = np.argsort(products, axis=None)[::-1][: 4 * top_k]
            for first, last in zip(*np.unravel_index(best, products.shape), strict=True):
                if products[first, last] > 0:
                    span = (window["offsets"][first][0], window["offsets"][last][1])
                    scores[span] = max(scores.get(span, 0.0), float(products[first, last]))
        answers = [
            {"score": score, "start": start, "end": end, "answer": context[start:end]}
            for (start, end), score in sorted(scores.items(), key=lambda item: -item[1])[:top_k]
        ]
        return answers[0] if top_k == 1 and answers else answers


def _texts(example: dict) -> tuple[str, str]:
    if not isinstance(example, dict) or set(example) != {"question", "context"}:
        raise ValueError('an input must be a dict with the keys "question" and "context"')
    for name in ("question", "context"):
        if not isinstance(example[name], str) or not example[name].strip():
            raise ValueError(f"{name} is empty or not a string")
    return example["question"], example["context"]


def _probabilities(logits: list[torch.Tensor], inside: list[np.ndarray], padded_left: bool) -> list[np.ndarray]:
    """Return the softmax over the allowed tokens of all windows; 0 for other tokens."""
    values = []
    for tensor, mask in zip(logits, inside, strict=True):
        value = tensor.reshape(-1).float().cpu().numpy().astype(np.float64)
        # Remove the padding of shorter windows in a batch.
        value = value[-len(mask) :] if padded_left else value[: len(mask)]
        values.append(np.where(mask, value, -np.inf))
    highest = max(value.max() for value in values)
    exponentials = [np.exp(value - highest) for value in values]
    total = sum(exponential.sum() for exponential in exponentials)
    return [exponential / total for exponential in exponentials]
