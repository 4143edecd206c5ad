"""Does a graph answer as PyTorch does? Differences, top answers, and cosines of vectors.

Each text is run by itself, as dynamic quantization depends on what shares a batch.

Dimensions in the shapes: b batch, s sequence length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...output.console import sentence_of
from ..errors import ServingError
from . import graph
from .memory import check_memory

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# The largest difference of an exported graph in float32: absolute, or relative to an output whose values are larger
# than 1, of which float32 itself leaves no more.
MOST = 5e-5
VECTORS = ("last_hidden_state", "pooler_output")
EVERY = 7  # one token of so many is masked, as in training


@dataclass
class Agreement:
    """What was found on texts that were read one by one.

    difference: the largest between any two numbers of the two outputs.
    scale: the largest number of the output in which that was, at least 1.
    same, answers: how many top answers are the same, of how many.
    cosines: of each text's vectors: the mean over its tokens, and the pooled one.
    """

    difference: float = 0.0
    scale: float = 1.0
    same: int = 0
    answers: int = 0
    cosines: list[float] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether float32 explains the difference."""
        return self.difference <= MOST * self.scale

    def __str__(self) -> str:
        if self.answers:
            return f"{self.same / self.answers:.1%} of {self.answers:,} top answers are the same"
        if self.cosines:
            return f"cosine with the vectors of PyTorch {min(self.cosines):.4f} or more, {np.mean(self.cosines):.4f} on average"
        return f"largest difference {self.difference:.1e}"


def open_session(path: Path) -> InferenceSession:
    """A graph in ONNX Runtime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def examples(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    max_length: int | None = None,
) -> Iterable[dict[str, np.ndarray]]:
    """The inputs of each text, masked where the model fills words in, and at last some of them in one padded batch."""
    texts = list(texts)
    for batch in [*([text] for text in texts), texts[:3]]:
        inputs = {name: x.numpy() for name, x in graph.encode(model, tokenizer, batch, max_length).items()}
        if _fills_masks(model):
            _mask(inputs, tokenizer)
        yield inputs


def _mask(inputs: dict[str, np.ndarray], tokenizer: PreTrainedTokenizerBase) -> None:
    ids = inputs["input_ids"]
    for row in ids:
        words = np.flatnonzero(~np.isin(row, tokenizer.all_special_ids))
        row[words[len(words) // 2 % EVERY :: EVERY]] = tokenizer.mask_token_id


def compare(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    graphs: dict[str, InferenceSession],
    texts: list[str],
    max_length: int | None = None,
    advance: Callable[[], object] = lambda: None,
) -> dict[str, Agreement]:
    """The agreement of each graph with a model in PyTorch.

    Args:
        graphs: sessions by name; their outputs are named as the model's are.
        max_length: texts are cut after so many tokens; None for a model without a longest input.
        advance: called after each text.

    Raises:
        ServingError: ONNX Runtime has no memory for a text; says how much it needs, and what length still goes.
    """
    import torch

    found = {name: Agreement() for name in graphs}
    for number, inputs in enumerate(examples(model, tokenizer, texts, max_length)):
        check_memory(model.config, inputs["input_ids"].shape, f"text {number + 1}")
        expected = graph.answers(model, {name: torch.from_numpy(x) for name, x in inputs.items()})
        expected = {name: x.numpy() for name, x in expected.items()}
        for name, session in graphs.items():
            try:
                outputs = session.run(list(expected), inputs)
            except Exception as error:  # ONNX Runtime's own are of many kinds
                raise ServingError(
                    f"ONNX Runtime cannot run text {number + 1} on {name}: {sentence_of(error)}"
                ) from None
            answers = dict(zip(expected, outputs, strict=True))
            _add(found[name], model, tokenizer, inputs, expected, answers, counted=number < len(texts))
        advance()
    return found


def _add(found: Agreement, model, tokenizer, inputs, expected, answers, counted: bool) -> None:
    for name, right in expected.items():
        given = answers[name].astype(np.float32)
        if given.shape != right.shape:
            raise ServingError(f"the graph answers {name} of shape {given.shape}, and PyTorch {right.shape}")
        difference, scale = float(np.abs(given - right).max()), max(1.0, float(np.abs(right).max()))
        if not difference / scale <= found.difference / found.scale:  # true of NaN as well
            found.difference, found.scale = difference, scale
        if not counted:
            continue
        if name in VECTORS:
            mask = inputs["attention_mask"][0] != 0
            ours, theirs = (x[0][mask].mean(0) if x.ndim == 3 else x[0] for x in (given, right))
            found.cosines.append(float(ours @ theirs / (np.linalg.norm(ours) * np.linalg.norm(theirs))))
        elif right.shape[-1] > 1:
            ours, theirs = (top_answers(name, x, model, tokenizer, inputs) for x in (given, right))
            found.same += int((ours == theirs).sum())
            found.answers += theirs.size


def top_answers(name, output, model, tokenizer, inputs) -> np.ndarray:
    """The answers in an output of one text: words at the masks, a class of each token, or one of the whole text."""
    if output.ndim == 3:
        ids = inputs["input_ids"]
        asked = ids == tokenizer.mask_token_id if _fills_masks(model) else inputs["attention_mask"] != 0
        output = output[asked]
    if getattr(model.config, "problem_type", None) == "multi_label_classification" and name == "logits":
        return output > 0
    return output.argmax(-1)


def _fills_masks(model: PreTrainedModel) -> bool:
    return type(model).__name__.endswith(("ForMaskedLM", "ForPreTraining"))
