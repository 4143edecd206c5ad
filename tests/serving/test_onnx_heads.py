"""`roformer export-onnx` for every head and family: names, differences, batch sizes and lengths."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from helpers.exporting import LEGACY, saved
from transformers import AutoConfig

from modeling_roformer.conversion.converter import convert
from modeling_roformer.serving.model_folder import table_length
from modeling_roformer.serving.onnx_export import export_onnx
from modeling_roformer.serving.onnx_export.agreement import open_session
from modeling_roformer.serving.onnx_export.graph import MAX_LENGTH, outputs_of
from modeling_roformer.serving.onnx_export.saved_model import load_model, saved_model

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
DYNAMIC = {**YARN, "rope_type": "dynamic"}
V2 = {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}
SIM = {"is_decoder": True, "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"}
POOLED = ["last_hidden_state", "pooler_output"]
# Class, fields of its configuration, and names of its outputs.
MODELS = {
    "bare": ("RoFormerModel", {}, ["last_hidden_state"]),
    "pooler": ("RoFormerModel", {"add_pooling_layer": True, "pooler_activation": "tanh"}, POOLED),
    "masked": ("RoFormerForMaskedLM", {"embedding_size": 8}, ["logits"]),
    "classes": ("RoFormerForSequenceClassification", {"num_labels": 3}, ["logits"]),
    "a number": ("RoFormerForSequenceClassification", {"num_labels": 1}, ["logits"]),
    "labels": (
        "RoFormerForSequenceClassification",
        {"num_labels": 3, "problem_type": "multi_label_classification"},
        ["logits"],
    ),
    "tokens": ("RoFormerForTokenClassification", {"num_labels": 3}, ["logits"]),
    "answers": ("RoFormerForQuestionAnswering", {}, ["start_logits", "end_logits"]),
    "choices": ("RoFormerForMultipleChoice", {}, ["logits"]),
    "cross triplets": ("RoFormerForTripletMatching", {}, ["logits"]),
    "bi triplets": ("RoFormerForTripletMatching", {"triplet_scorer": "bi"}, ["logits"]),
    "values rotated": ("RoFormerModel", {"rotary_value": True}, ["last_hidden_state"]),
    "yarn": ("RoFormerModel", {"rope_parameters": YARN}, ["last_hidden_state"]),
    "dynamic": ("RoFormerModel", {"rope_parameters": DYNAMIC}, ["last_hidden_state"]),
    "unpads": ("RoFormerForMaskedLM", {"unpad_inputs": True}, ["logits"]),
    "V2": ("RoFormerForMaskedLM", V2, ["logits"]),
    "elu": ("RoFormerForMaskedLM", {"attention_type": "linear"}, ["logits"]),
    "softmax": ("RoFormerModel", {"attention_type": "linear", "linear_feature_map": "softmax"}, ["last_hidden_state"]),
    "favor": ("RoFormerModel", {"attention_type": "linear", "linear_feature_map": "favor"}, ["last_hidden_state"]),
    "learned": ("RoFormerModel", {"position_encoding": "learned"}, ["last_hidden_state"]),
    "sinusoidal": ("RoFormerModel", {"position_encoding": "sinusoidal"}, ["last_hidden_state"]),
    "Sim": ("RoFormerForCausalLM", SIM, POOLED),
    "Sim's bare model": ("RoFormerModel", SIM, POOLED),
    "NEZHA": ("NezhaModel", {}, POOLED),
    "NEZHA masked": ("NezhaForMaskedLM", {}, ["logits"]),
    "NEZHA both": ("NezhaForPreTraining", {}, ["prediction_logits", "seq_relationship_logits"]),
    "NEZHA next": ("NezhaForNextSentencePrediction", {}, ["logits"]),
    "NEZHA classes": ("NezhaForSequenceClassification", {"num_labels": 3}, ["logits"]),
    "NEZHA tokens": ("NezhaForTokenClassification", {"num_labels": 3}, ["logits"]),
    "NEZHA answers": ("NezhaForQuestionAnswering", {}, ["start_logits", "end_logits"]),
    "NEZHA choices": ("NezhaForMultipleChoice", {}, ["logits"]),
    "BERT": ("BertModel", {}, POOLED),
    "BERT masked": ("BertForMaskedLM", {}, ["logits"]),
}
# Batch size and length; a tracer may take a size of 1 for a constant.
SHAPES = [(1, 7), (5, 33), (2, 1), (1, 512)]


def assert_any_shape_agrees(folder: Path, output: Path, vocab_size: int, tolerance: float = 5e-5) -> None:
    """Compare the graph with PyTorch on random ids, padded at the end."""
    session, model = open_session(output / "onnx" / "model.onnx"), load_model(saved_model(folder))
    inner = list(session.get_inputs()[0].shape[1:-1])
    longest = table_length(model.config.to_dict()) or MAX_LENGTH
    for b, s in SHAPES:
        if s > longest:
            continue
        generator, n = torch.Generator().manual_seed(b * s), [4 if isinstance(axis, str) else axis for axis in inner]
        shape = (b, *n, s)
        inputs = {
            "input_ids": torch.randint(5, vocab_size, shape, generator=generator),
            "token_type_ids": torch.randint(0, 2, shape, generator=generator),
            "attention_mask": torch.ones(shape, dtype=torch.long),
        }
        inputs["attention_mask"][0, ..., s // 2 + 1 :] = 0
        expected = outputs_of(model, inputs)
        found = session.run(list(expected), {name: value.numpy() for name, value in inputs.items()})
        for name, value in zip(expected, found, strict=True):
            right = expected[name].numpy()
            assert value.shape == right.shape, name
            assert np.abs(value - right).max() <= tolerance * max(1, np.abs(right).max()), (name, shape)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_head_agrees_with_pytorch(name, tmp_path):
    architecture, fields, outputs = MODELS[name]
    folder = saved(tmp_path / "model", architecture, **fields)
    report = export_onnx(folder, tmp_path / "onnx", int8=True, fp16=True)
    for file, agreement in report.agreements.items():
        onnx.checker.check_model(tmp_path / "onnx" / "onnx" / file, full_check=True)
        assert agreement.difference < {"model.onnx": 5e-5, "model_fp16.onnx": 0.02, "model_quantized.onnx": 0.3}[file]
    assert report.inputs == ["input_ids", "token_type_ids", "attention_mask"] and report.outputs == outputs
    assert [output.name for output in open_session(tmp_path / "onnx/onnx/model.onnx").get_outputs()] == outputs
    agreement = report.agreements["model.onnx"]
    assert agreement.is_exact and agreement.same == agreement.answers
    assert agreement.answers or agreement.cosines or name == "a number"
    config = AutoConfig.from_pretrained(tmp_path / "onnx")
    assert config.architectures == ["RoFormerModel" if name == "Sim" else architecture]
    assert_any_shape_agrees(folder, tmp_path / "onnx", config.vocab_size)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["word", "v2", "sim", "wobert", "wonezha"])
def test_every_family_agrees_with_pytorch(name, tmp_path):
    convert(LEGACY / name, tmp_path / "model")
    report = export_onnx(tmp_path / "model", tmp_path / "onnx")
    assert report.agreements["model.onnx"].difference <= 5e-5
    assert report.word_level == (name != "sim") and (report.note is not None) == (name == "sim")
    assert ("tokenizer.json" in report.files) == (name == "sim")
    assert_any_shape_agrees(tmp_path / "model", tmp_path / "onnx", vocab_size=100)
