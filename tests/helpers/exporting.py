"""Small saved models for the tests of exports."""

from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from helpers.paths import REPOSITORY
from helpers.small_models import TINY, small_config

import modeling_roformer
from modeling_roformer import RoFormerTokenizer

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"


def saved(folder: Path, architecture: str, vocabulary: str = "character", **fields) -> Path:
    """Save a small model of any class with random weights and a fixture's vocabulary, and return the folder."""
    tokenizer = RoFormerTokenizer(LEGACY / vocabulary / "vocab.txt")
    kind = getattr(modeling_roformer, architecture, None) or getattr(transformers, architecture)
    torch.manual_seed(0)
    model = kind(small_config(kind.config_class, **{"vocab_size": len(tokenizer), **TINY, **fields}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# Head -> its pipeline in transformers.js for the model_type roformer, and for roformer_v2, roformer_x and nezha.
# "AutoModel" if there is no pipeline, None if there is no such model. docs/serving.md has the same table.
IN_JAVASCRIPT = {
    "Model": ("feature-extraction", "feature-extraction"),
    "ForMaskedLM": ("fill-mask", "AutoModel"),
    "ForSequenceClassification": ("text-classification", "AutoModel"),
    "ForTokenClassification": ("token-classification", "AutoModel"),
    "ForQuestionAnswering": ("question-answering", "AutoModel"),
    "ForMultipleChoice": ("AutoModel", "AutoModel"),
    "ForTripletMatching": ("AutoModel", "AutoModel"),
    "ForPreTraining": (None, "AutoModel"),
    "ForNextSentencePrediction": (None, "AutoModel"),
}


def write_graph(folder: Path, external: bool) -> None:
    """Add a graph for ONNX Runtime to a folder, with its weights in it or in a file of their own."""
    rows = onnx.numpy_helper.from_array(np.ones((9, 16), np.float32), "rows")
    values = onnx.helper.make_node("Gather", ["rows", "input_ids"], ["last_hidden_state"])
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", "length"])
    out = onnx.helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["batch", "length", 16])
    model = onnx.helper.make_model(onnx.helper.make_graph([values], "model", [ids], [out], [rows]))
    (folder / "onnx").mkdir()
    options = {"save_as_external_data": True, "location": "model.onnx_data", "size_threshold": 0} if external else {}
    onnx.save(model, folder / "onnx" / "model.onnx", **options)
