"""Comparison of a graph's outputs with PyTorch's: differences, top predictions, and cosines of vectors.

Texts are run one at a time, because dynamic quantisation depends on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from modeling_roformer.data import batch_texts, find_files, read_batches

from ..errors import ServingError
from . import graph

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Largest difference that float32 explains, relative to the largest value of the output if that exceeds 1.
FLOAT32_TOLERANCE = 5e-5
VECTORS = ("last_hidden_state", "pooler_output", "sentence_embedding", "token_embeddings")
MASK_INTERVAL = 7  # tokens, as in training
# From two characters to six hundred: a question, news, law, a review, an encyclopedia, and some Latin letters and
# digits.
SENTENCES = (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()


@dataclass
class Agreement:
    """Agreement of two models on texts that are run one at a time.

    Args:
        difference: largest difference between two output values.
        scale: largest value of that output, at least 1.
        same: number of equal top predictions.
        answers: number of all top predictions.
        cosines: cosines between the vectors of each text: the mean over its tokens, and the pooled one.
    """

    difference: float = 0.0
    scale: float = 1.0
    same: int = 0
    answers: int = 0
    cosines: list[float] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """True if float32 explains the difference."""
        return self.difference <= FLOAT32_TOLERANCE * self.scale

    def __str__(self) -> str:
        if self.answers:
            return f"{self.same / self.answers:.1%} of {self.answers:,} top answers are the same"
        if self.cosines:
            return (
                f"cosine with the vectors of PyTorch at least {min(self.cosines):.4f}, "
                f"{np.mean(self.cosines):.4f} on average"
            )
        return f"largest difference {self.difference:.1e}"


def read_texts(path: str | Path | None) -> list[str]:
    """Return the texts of a file or a folder. Without a path, return the built-in sentences.

    Args:
        path: text files, or other files with a column `text`.

    Raises:
        ServingError: the file has no text.
        DataError: it cannot be read.
    """
    if path is None:
        return SENTENCES
    batches = (batch for file in find_files([path]) for batch in read_batches(file, ["text"]))
    texts = [text for batch in batches for _, text in batch_texts(batch, "text") if text is not None]
    if not texts:
        raise ServingError(f"{path} has no text; expected one text per line")
    return texts


def open_session(path: Path) -> InferenceSession:
    """Load a graph into ONNX Runtime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def examples(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], max_length: int
) -> Iterable[dict[str, np.ndarray]]:
    """Yield the inputs of each text, then of the first three as one padded batch. A masked language model gets
    masks."""
    for batch in [*([text] for text in texts), texts[:3]]:
        inputs = {name: x.numpy() for name, x in graph.encode(model, tokenizer, batch, max_length).items()}
        if _fills_masks(model):
            for row in inputs["input_ids"]:
                words = np.flatnonzero(~np.isin(row, tokenizer.all_special_ids))
                row[words[len(words) // 2 % MASK_INTERVAL :: MASK_INTERVAL]] = tokenizer.mask_token_id
        yield inputs


def compare(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    graphs: dict[str, InferenceSession],
    texts: list[str],
    max_length: int,
    advance: Callable[[], object] = lambda: None,
) -> dict[str, Agreement]:
    """Return the agreement of each graph with the model in PyTorch.

    Args:
        graphs: sessions by name, with the model's output names.
        max_length: truncate texts to this number of tokens.
        advance: called after each text.
    """
    import torch

    agreements = {name: Agreement() for name in graphs}
    for number, inputs in enumerate(examples(model, tokenizer, texts, max_length)):
        expected = graph.outputs_of(model, {name: torch.from_numpy(x) for name, x in inputs.items()})
        expected = {name: x.numpy() for name, x in expected.items()}
        for name, session in graphs.items():
            outputs = dict(zip(expected, session.run(list(expected), inputs), strict=True))
            is_one_text = number < len(texts)
            _add(agreements[name], model, tokenizer, inputs, expected, outputs, counts_predictions=is_one_text)
        advance()
    return agreements


def _add(
    agreement: Agreement, model, tokenizer, inputs, expected_outputs, graph_outputs, counts_predictions: bool
) -> None:
    """Add the outputs for one batch to an agreement, with predictions and cosines if the batch is one text."""
    for name, expected in expected_outputs.items():
        output = graph_outputs[name].astype(np.float32)
        difference, scale = float(np.abs(output - expected).max()), max(1.0, float(np.abs(expected).max()))
        if not difference / scale <= agreement.difference / agreement.scale:  # true of NaN as well
            agreement.difference, agreement.scale = difference, scale
        if not counts_predictions:
            continue
        if name in VECTORS:
            mask = inputs["attention_mask"][0] != 0
            a, b = (x[0][mask].mean(0) if x.ndim == 3 else x[0] for x in (output, expected))
            agreement.cosines.append(float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))))
        elif expected.shape[-1] > 1:
            a, b = (top_predictions(name, x, model, tokenizer, inputs) for x in (output, expected))
            agreement.same += int((a == b).sum())
            agreement.answers += b.size


def top_predictions(name, output, model, tokenizer, inputs) -> np.ndarray:
    """Return the top predictions for one text: words at masks, a class per token, or one class for the text."""
    if output.ndim == 3:
        ids = inputs["input_ids"]
        predicted = ids == tokenizer.mask_token_id if _fills_masks(model) else inputs["attention_mask"] != 0
        output = output[predicted]
    if getattr(model.config, "problem_type", None) == "multi_label_classification" and name == "logits":
        return output > 0
    return output.argmax(-1)


def _fills_masks(model: PreTrainedModel) -> bool:
    return type(model).__name__.endswith(("ForMaskedLM", "ForPreTraining"))
