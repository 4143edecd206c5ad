"""`roformer export-onnx --vectors`: pooling and normalisation in the graph."""

import json

import numpy as np
import pytest
from helpers.exporting import saved
from helpers.messages import refused
from tokenizers import Tokenizer

from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.onnx_export import export_onnx
from modeling_roformer.serving.onnx_export.agreement import open_session
from modeling_roformer.serving.vectors.encoder import TextEncoder

modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
TEXTS = ["明月照着山路，孩子在桥头数星星。", "山", "今天天气很好"]
SIM = {"is_decoder": True, "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"}
# Class, fields of the configuration, and the pooling that modules of sentence-transformers have.
MODELS = {
    "masked": ("RoFormerForMaskedLM", {}, None),
    "with a pooler": ("RoFormerModel", {"add_pooling_layer": True, "pooler_activation": "tanh"}, None),
    "Sim": ("RoFormerForCausalLM", SIM, None),
    "Sim with modules": ("RoFormerForCausalLM", SIM, "cls"),
    "bi": ("RoFormerForTripletMatching", {"triplet_scorer": "bi"}, None),
    "linear": ("RoFormerModel", {"attention_type": "linear"}, None),
    "NEZHA": ("NezhaForMaskedLM", {}, None),
    "BERT": ("BertForMaskedLM", {}, None),
    **{pooling: ("RoFormerModel", {}, pooling) for pooling in ("cls", "mean", "max", "weightedmean", "lasttoken")},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_vectors_need_no_code_of_ours(name, tmp_path):
    """tokenizer.json in the package tokenizers, and the graph, make the vectors of `roformer embed`, of length 1."""
    architecture, fields, pooling = MODELS[name]
    folder = saved(tmp_path / "model", architecture, **fields)
    if pooling:
        width = json.loads((folder / "config.json").read_text())["hidden_size"]
        parts = [modules.Pooling(width, pooling), modules.Dense(width, 8), modules.Normalize()]
        names = ["Transformer", "Pooling", "Dense", "Normalize"]
        listed = [{"type": f"sentence_transformers.models.{name}", "path": name} for name in names]
        (folder / "modules.json").write_text(json.dumps(listed))
        for part, name in zip(parts, names[1:], strict=True):
            (folder / name).mkdir()
            part.save(str(folder / name))
    report = export_onnx(folder, tmp_path / "onnx", vectors=True, int8=True)
    assert report.outputs == ["sentence_embedding", "token_embeddings"] and report.agreements["model.onnx"].cosines
    assert "sentence_embedding" in (tmp_path / "onnx" / "README.md").read_text(encoding="utf-8")

    lengths = [("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")]
    stated = [json.loads((tmp_path / "onnx" / file).read_text())[field] for file, field in lengths]
    assert stated == [json.loads((folder / "config.json").read_text())["max_position_embeddings"]] * 2

    tokenizer = Tokenizer.from_file(str(tmp_path / "onnx" / "tokenizer.json"))
    tokenizer.enable_padding()
    batch = tokenizer.encode_batch(TEXTS)
    inputs = {
        "input_ids": np.array([text.ids for text in batch]),
        "attention_mask": np.array([text.attention_mask for text in batch]),
        "token_type_ids": np.array([text.type_ids for text in batch]),
    }
    found, tokens = open_session(tmp_path / "onnx" / "onnx" / "model.onnx").run(report.outputs, inputs)
    encoder = TextEncoder(folder, device="cpu")
    expected = encoder(TEXTS)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=2e-6, rtol=0)
    assert tokens.shape[:2] == inputs["input_ids"].shape


def test_models_without_vectors_are_refused(tmp_path):
    cross = saved(tmp_path / "cross", "RoFormerForTripletMatching")
    decoder = saved(tmp_path / "decoder", "RoFormerForCausalLM", is_decoder=True)
    for folder, words in ((cross, ["triplet_scorer"]), (decoder, ["RoFormerForCausalLM"])):
        with refused(ServingError, folder, *words):
            export_onnx(folder, tmp_path / "onnx", vectors=True)
    assert not (tmp_path / "onnx").exists()
