"""From a model to a graph: names of inputs and outputs, and which of their sizes are free."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from ...output.console import sentence_of
from ..errors import ServingError
from .quiet import quiet

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What a graph calls the sizes that may be any.
BATCH, CHOICES, LENGTH = "batch_size", "num_choices", "sequence_length"
TEXTS = ("今天天气很好，我想去公园玩。", "很短。")
LEFT_OUT = ("past_key_values", "hidden_states", "attentions", "cross_attentions", "loss")


def sequences_of(model: PreTrainedModel) -> int | None:
    """How many sequences one example of the model is: None for one, 0 for any number, or just so many."""
    name = type(model).__name__
    if name.endswith("ForMultipleChoice"):
        return 0
    if name.endswith("ForTripletMatching"):
        return 3 if model.config.triplet_scorer == "bi" else 2
    return None


def input_names(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The tokenizer's names of what the model reads, in the tokenizer's order."""
    read = inspect.signature(model.forward).parameters
    return [name for name in tokenizer.model_input_names if name in read]


def encode(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], max_length: int | None = None
) -> dict[str, torch.Tensor]:
    """A batch, one example of each text; where an example is several sequences, they are all made from it.

    Shape (b, s), or (b, n, s): the text itself and its parts, or pairs of these.
    """
    import torch

    n = sequences_of(model)
    options = {"padding": True, "return_tensors": "pt"}
    if max_length is not None:
        options |= {"truncation": True, "max_length": max_length}
    if n is None:
        rows = tokenizer(texts, **options)
    else:
        parts = [[text, text[: len(text) // 2] or text, text[len(text) // 2 :]][: n or 3] for text in texts]
        if n == 3:
            rows = tokenizer([part for group in parts for part in group], **options)
        else:
            firsts = [group[0] for group in parts for _ in group]
            rows = tokenizer(firsts, [part for group in parts for part in group], **options)
        rows = {name: value.unflatten(0, (len(texts), -1)) for name, value in rows.items()}
    return {name: torch.as_tensor(rows[name]) for name in input_names(model, tokenizer)}


def answers(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the model answers, under transformers' names."""
    import torch

    with torch.no_grad():
        outputs = model(**inputs)
    return {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor) and name not in LEFT_OUT}


def write_graph(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> tuple[list[str], list[str]]:
    """Export a model for any batch and any length; gives the names of the inputs and of the outputs.

    Raises ServingError if the model is one that torch cannot export.
    """
    import torch

    example = encode(model, tokenizer, list(TEXTS))
    outputs = list(answers(model, example))
    axes = {0: BATCH, 1: LENGTH}
    if (n := sequences_of(model)) is not None:
        axes = {0: BATCH, 2: LENGTH} | ({1: CHOICES} if n == 0 else {})
    with quiet():
        try:
            program = torch.onnx.export(
                model,
                (),
                kwargs=example,
                output_names=outputs,
                dynamic_shapes={name: dict(axes) for name in example},
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            cause = sentence_of(error.__cause__ or error)
            raise ServingError(
                f"{type(model).__name__} cannot be exported by torch {torch.__version__}: {cause}"
            ) from None
    import onnx

    exported = program.model_proto
    for node in exported.graph.node:  # where each stood in the source, with the paths of this machine
        del node.metadata_props[:]
    onnx.save(exported, path)
    return list(example), outputs


def check_graph(path: Path) -> None:
    """Raise ServingError if a file is not valid ONNX, by the full check of the package onnx."""
    import onnx

    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ServingError(
            f"{path.name} is not valid ONNX: {sentence_of(error)}; no folder was written, try other versions of torch "
            "and onnxruntime"
        ) from None
