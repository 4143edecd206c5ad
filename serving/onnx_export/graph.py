"""Export of a model to an ONNX graph with dynamic batch size and length."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.output.console import sentence_of

from ..errors import ServingError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Names of the dynamic dimensions.
BATCH, CHOICES, LENGTH = "batch_size", "num_choices", "sequence_length"
MAX_LENGTH = 2048  # tokens of a text to compare on: ONNX Runtime's attention stores whole matrices
TEXTS = ("今天天气很好，我想去公园玩。", "很短。")
OPSET = 20  # on ONNX Runtime since 1.17; torch writes it with IR version 10, on ONNX Runtime since 1.18
LEFT_OUT = ("past_key_values", "cache", "hidden_states", "attentions", "cross_attentions", "loss")


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the messages of torch's exporter, onnxscript and ONNX Runtime's quantizers about every node they change."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def sequences_of(model: PreTrainedModel) -> int | None:
    """Return the number of sequences per example: 0 for any number, None if the inputs have no such dimension."""
    name = type(model).__name__
    if name.endswith("ForMultipleChoice"):
        return 0
    if name.endswith("ForTripletMatching"):
        return 3 if model.config.triplet_scorer == "bi" else 2
    return None


def encode(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], max_length: int = MAX_LENGTH
) -> dict[str, torch.Tensor]:
    """Return the inputs for a batch with one example per text, of shape (batch, length) or (batch, n, length).

    If an example has n sequences, they are the text and its halves, or pairs of these.
    """
    import torch

    n = sequences_of(model)
    options = {"padding": True, "truncation": True, "max_length": max_length, "return_tensors": "pt"}
    if n is None:
        rows = tokenizer(texts, **options)
    else:
        parts = [[text, text[: len(text) // 2] or text, text[len(text) // 2 :]][: n or 3] for text in texts]
        flat = [part for group in parts for part in group]
        firsts = [group[0] for group in parts for _ in group]
        rows = tokenizer(flat, **options) if n == 3 else tokenizer(firsts, flat, **options)
        rows = {name: value.unflatten(0, (len(texts), -1)) for name, value in rows.items()}
    read = inspect.signature(model.forward).parameters
    return {name: torch.as_tensor(rows[name]) for name in tokenizer.model_input_names if name in read}


def outputs_of(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the model's outputs by transformers' names: all tensors except LEFT_OUT."""
    import torch

    with torch.no_grad():
        outputs = model(**inputs)
    return {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor) and name not in LEFT_OUT}


def write_graph(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> tuple[list[str], list[str]]:
    """Write the graph of a model and return the names of its inputs and outputs.

    Raises:
        ServingError: torch cannot export the model.
    """
    import onnx
    import torch

    example = encode(model, tokenizer, list(TEXTS))
    outputs = list(outputs_of(model, example))
    axes = {0: BATCH, 1: LENGTH}
    if (n := sequences_of(model)) is not None:
        axes = {0: BATCH, 2: LENGTH} | ({1: CHOICES} if n == 0 else {})
    shapes = {name: dict(axes) for name in example}
    with quiet():
        try:
            program = torch.onnx.export(
                model,
                (),
                kwargs=example,
                output_names=outputs,
                dynamic_shapes=shapes,
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            cause = sentence_of(error.__cause__ or error)
            raise ServingError(f"torch {torch.__version__} cannot export {type(model).__name__}: {cause}") from None
    exported = program.model_proto
    for node in exported.graph.node:  # they name source files of this machine
        del node.metadata_props[:]
    onnx.save(exported, path)
    return list(example), outputs
