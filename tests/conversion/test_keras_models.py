"""Fine-tuned bert4keras models, in the forms that Keras saves them in: they answer as they did in Keras."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from helpers.legacy_checkpoints import copy_form
from helpers.paths import REPOSITORY
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

import modeling_roformer
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.formats.keras_bundle import KerasBundle
from modeling_roformer.conversion.formats.keras_hdf5 import KerasHDF5

FIXTURES = REPOSITORY / "tests" / "fixtures" / "keras"
BERT4KERAS = os.environ.get("ROFORMER_BERT4KERAS_PYTHON")
HDF5, TENSOR_BUNDLE, WHOLE = "best_model.h5", "best_model.weights", "whole_model.h5"

# model, file, what is asked for, and the class that it becomes
CONVERTED = [
    ("classification", HDF5, {}, "RoFormerForSequenceClassification"),
    ("classification", TENSOR_BUNDLE, {"head": "classification"}, "RoFormerForSequenceClassification"),
    ("triplet", HDF5, {}, "RoFormerForTripletMatching"),
    ("triplet", TENSOR_BUNDLE, {"head": "triplet"}, "RoFormerForTripletMatching"),
    ("v2_classification", HDF5, {}, "RoFormerForSequenceClassification"),
    ("v2_classification", TENSOR_BUNDLE, {"head": "classification"}, "RoFormerForSequenceClassification"),
    ("mlm", HDF5, {}, "RoFormerForMaskedLM"),
    ("mlm", TENSOR_BUNDLE, {}, "RoFormerForMaskedLM"),
    ("encoder", HDF5, {}, "RoFormerModel"),
    ("encoder", TENSOR_BUNDLE, {}, "RoFormerModel"),
    ("tokens", HDF5, {}, "RoFormerForTokenClassification"),
    ("tokens", TENSOR_BUNDLE, {}, "RoFormerForTokenClassification"),
    ("nested", HDF5, {"head": "classification"}, "RoFormerForSequenceClassification"),
    ("nested", TENSOR_BUNDLE, {"head": "classification"}, "RoFormerForSequenceClassification"),
    ("pooler", WHOLE, {}, "RoFormerForSequenceClassification"),
    ("pooler", HDF5, {"head": "pooler"}, "RoFormerForSequenceClassification"),
    ("regression", WHOLE, {}, "RoFormerForSequenceClassification"),
    ("unilm", HDF5, {}, "RoFormerForCausalLM"),
    ("wonezha", HDF5, {}, "NezhaForMaskedLM"),
    ("wonezha", TENSOR_BUNDLE, {}, "NezhaForMaskedLM"),
    ("bert_classification", HDF5, {"head": "tokens"}, "BertForTokenClassification"),
    ("bert_classification", TENSOR_BUNDLE, {"head": "tokens"}, "BertForTokenClassification"),
    ("classification", HDF5, {"head": "tokens"}, "RoFormerForTokenClassification"),
    ("bert_pooler", HDF5, {"head": "pooler"}, "BertForSequenceClassification"),
]
ACTIVATIONS = {
    "classification": lambda x: x.softmax(-1),
    "v2_classification": lambda x: x.softmax(-1),
    "bert_classification": lambda x: x.softmax(-1),
    "bert_pooler": lambda x: x.softmax(-1),
    "tokens": lambda x: x.softmax(-1),
    "pooler": lambda x: x.softmax(-1),
    "triplet": torch.sigmoid,
}


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "output"


def legacy_folder(tmp_path: Path, name: str, file: str, fixtures: Path = FIXTURES) -> Path:
    """A folder with one form of a fixture."""
    return copy_form(fixtures / name, file, tmp_path / "legacy")  # a name that says nothing


def answers(folder: Path, token_ids: np.ndarray, segment_ids: np.ndarray) -> torch.Tensor:
    """Outputs of the class that the folder names; id 0 is padding. Triplets are scored text by text."""
    name = AutoConfig.from_pretrained(folder).architectures[0]
    model = getattr(transformers if name.startswith("Bert") else modeling_roformer, name).from_pretrained(folder).eval()
    tokens, segments = torch.from_numpy(token_ids).long(), torch.from_numpy(segment_ids).long()
    mask = (tokens != 0).long()
    if name == "RoFormerForTripletMatching":
        tokens, segments, mask = (x[:, None].repeat(1, 2, 1) for x in (tokens, segments, mask))
    with torch.inference_mode():
        out = model(input_ids=tokens, token_type_ids=segments, attention_mask=mask)
    if name == "RoFormerForTripletMatching":
        assert torch.equal(out.logits[:, 0], out.logits[:, 1])
        return out.logits[:, :1]
    return out.last_hidden_state if name.endswith("Model") else out.logits


def assert_parity(tmp_path: Path, name: str, file: str, options: dict, architecture: str, fixtures: Path) -> None:
    """Keras' logits, and its outputs after the last activation, at every position that is not padding."""
    output = tmp_path / "output"
    report = convert(legacy_folder(tmp_path, name, file, fixtures), output, verify=True, **options)
    assert report.verified
    assert json.loads((output / "config.json").read_text())["architectures"] == [architecture]
    expected = np.load(fixtures / name / "reference.npz")
    found = answers(output, expected["token_ids"], expected["segment_ids"])
    if found.ndim > expected["logits"].ndim:
        found = found[:, 0]  # a head of [CLS] that was made one of every token
    real = expected["token_ids"] != 0 if found.ndim == 3 else slice(None)
    assert np.abs(expected["logits"][real]).max() > 0.05  # a difference of 2e-5 would show
    np.testing.assert_allclose(found.numpy()[real], expected["logits"][real], rtol=0, atol=2e-5)
    probabilities = ACTIVATIONS.get(name, lambda x: x)(found)
    np.testing.assert_allclose(probabilities.numpy()[real], expected["outputs"][real], rtol=0, atol=2e-5)


@pytest.mark.parametrize(("name", "file", "options", "architecture"), CONVERTED)
def test_answers_are_those_of_keras(name, file, options, architecture, tmp_path):
    assert_parity(tmp_path, name, file, options, architecture, FIXTURES)


@pytest.mark.live
@pytest.mark.skipif(not BERT4KERAS, reason="name a Python that has bert4keras in ROFORMER_BERT4KERAS_PYTHON")
def test_keras_live(tmp_path):
    """Other weights than the recorded ones, trained for a step, saved and run by Keras now."""
    script, made = REPOSITORY / "tests" / "fixtures" / "make_keras_fixtures.py", tmp_path / "made"
    seed = str(int.from_bytes(os.urandom(3), "big"))
    subprocess.run([BERT4KERAS, str(script), "--seed", seed, str(made)], check=True, capture_output=True, timeout=900)
    for number, converted in enumerate(CONVERTED):
        place = tmp_path / str(number)
        place.mkdir()
        assert_parity(place, *converted, made)


@pytest.mark.parametrize("name", ["classification", "triplet", "v2_classification", "mlm", "nested", "wonezha"])
def test_both_forms_hold_the_same(name):
    hdf5, bundle = KerasHDF5(FIXTURES / name / HDF5), KerasBundle(FIXTURES / name / TENSOR_BUNDLE)
    model = {key for key in bundle.entries if not key.startswith("optimizer/")}
    assert model == hdf5.entries.keys()
    for key in model:
        assert np.array_equal(hdf5.read(key), bundle.read(key))


# What the folder says.


def test_a_head_of_one_layer_is_refused_by_plain_transformers(output, tmp_path):
    convert(legacy_folder(tmp_path, "classification", HDF5), output)
    config = json.loads((output / "config.json").read_text())
    assert config["model_type"] == "roformer_x" and config["classifier_layers"] == 1
    assert config.get("problem_type") is None and len(AutoConfig.from_pretrained(output).id2label) == 2
    state = load_file(output / "model.safetensors")
    assert state["classifier.out_proj.weight"].shape == (2, 16) and "classifier.dense.weight" not in state


@pytest.mark.parametrize(
    ("name", "problem_type", "says"),
    [("pooler", "single_label_classification", "softmax"), ("regression", "regression", "linear")],
)
def test_a_model_saved_whole_tells_its_activations(name, problem_type, says, output, tmp_path):
    report = convert(legacy_folder(tmp_path, name, WHOLE), output)
    config = AutoConfig.from_pretrained(output)
    assert config.problem_type == problem_type
    assert report.rows["its activation"].startswith(says)
    assert config.classifier_activation == ("tanh" if name == "pooler" else None)


def test_the_report_names_the_task_layer(output, tmp_path):
    report = convert(legacy_folder(tmp_path, "classification", TENSOR_BUNDLE), output, head="classification")
    assert report.rows["task layer"] == "dense: Dense(2) over [CLS]"
    assert report.architecture == "RoFormerForSequenceClassification"
    assert "not in the file" in report.rows["its activation"]
    assert report.extras.keys() == {"optimiser state"}


def test_the_bare_model_is_written_as_save_pretrained_writes_it(output, tmp_path):
    convert(legacy_folder(tmp_path, "encoder", HDF5), output)
    AutoModel.from_pretrained(output).save_pretrained(tmp_path / "saved")
    ours, saved = load_file(output / "model.safetensors"), load_file(tmp_path / "saved" / "model.safetensors")
    assert ours.keys() == saved.keys() and all(torch.equal(ours[key], saved[key]) for key in ours)


@pytest.mark.parametrize("target", [None, "roformer"])
def test_computed_positions_are_dropped_and_reported(target, output, tmp_path):
    report = convert(legacy_folder(tmp_path, "wonezha", HDF5), output, as_family=target, verify=True)
    assert report.family == "WoNEZHA" and "relative positions" in report.sign
    assert report.extras == {"relative positions, which are computed": ["bert/embeddings/relative_position_embeddings"]}


@pytest.mark.parametrize(
    ("name", "file", "left_out"),
    [
        ("triplet", TENSOR_BUNDLE, ["dense/bias", "dense/kernel"]),
        ("crf", HDF5, ["dense/kernel", "dense/bias", "conditional_random_field/trans"]),
        ("pooler", HDF5, ["dense/kernel", "dense/bias"]),
    ],
)
def test_a_task_layer_can_be_left_out(name, file, left_out, output, tmp_path):
    """With the pooler below it."""
    report = convert(legacy_folder(tmp_path, name, file), output, head="none", verify=True)
    assert report.extras["task layer"] == left_out and ("pooler" in report.extras) == (name == "pooler")
    assert report.family == "RoFormer" and type(AutoModel.from_pretrained(output)).__name__ == "RoFormerModel"


def test_two_forms_under_one_name_are_told_apart(output, tmp_path):
    folder = legacy_folder(tmp_path, "classification", TENSOR_BUNDLE)
    shutil.copyfile(FIXTURES / "classification" / HDF5, folder / TENSOR_BUNDLE)
    with pytest.raises(CheckpointError, match=r"--checkpoint: best_model\.weights\.index, best_model\.weights$"):
        convert(folder, output)
    report = convert(folder, output, checkpoint="best_model.weights")
    assert not report.extras
    shutil.rmtree(output)
    report = convert(folder, output, checkpoint="best_model.weights.index", head="classification")
    assert report.extras


def test_a_float16_copy(output, tmp_path):
    convert(legacy_folder(tmp_path, "triplet", HDF5), output, dtype="float16", verify=True)
    assert load_file(output / "model.safetensors")["scorer.weight"].dtype == torch.float16


def test_a_classifier_over_a_linear_pooler_of_a_bert(output, tmp_path):
    """The same weights as with tanh, in a RoFormer with a table of positions: transformers' BERT has only tanh."""
    folder = legacy_folder(tmp_path, "bert_pooler", HDF5)
    convert(folder, tmp_path / "tanh", head="pooler")
    report = convert(folder, output, head="linear-pooler", verify=True)
    assert report.architecture == "RoFormerForSequenceClassification" and "modules.json" not in report.files
    bert = AutoModelForSequenceClassification.from_pretrained(tmp_path / "tanh").eval()
    model = AutoModelForSequenceClassification.from_pretrained(output).eval()
    assert model.config.position_encoding == "learned" and not model.config.is_decoder
    ids = torch.arange(2, 9)[None]
    with torch.inference_mode():
        first = bert.bert(ids).last_hidden_state[:, 0]
        expected = bert.classifier(bert.bert.pooler.dense(first))
        assert expected.std() > 0.1
        torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=2e-5)
