"""Fine-tuned bert4keras models, in the forms that Keras saves them in: they answer as they did in Keras."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from paths import REPOSITORY
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, pipeline

import modeling_roformer
from modeling_roformer.conversion.convert import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.keras_bundle import KerasBundle
from modeling_roformer.conversion.keras_hdf5 import KerasHDF5

FIXTURES = REPOSITORY / "tests" / "fixtures" / "keras"
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
    ("regression", WHOLE, {}, "RoFormerForSequenceClassification"),
    ("unilm", HDF5, {}, "RoFormerForCausalLM"),
    ("wonezha", HDF5, {}, "NezhaForMaskedLM"),
    ("wonezha", TENSOR_BUNDLE, {}, "NezhaForMaskedLM"),
]
ACTIVATIONS = {
    "classification": lambda x: x.softmax(-1), "v2_classification": lambda x: x.softmax(-1),
    "tokens": lambda x: x.softmax(-1), "pooler": lambda x: x.softmax(-1), "triplet": torch.sigmoid,
}  # fmt: skip


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "output"


def legacy_folder(tmp_path: Path, name: str, file: str) -> Path:
    """A folder with one form of a fixture."""
    folder = tmp_path / name
    folder.mkdir()
    for each in [FIXTURES / name / "bert_config.json", FIXTURES / name / "vocab.txt", *FIXTURES.glob(f"{name}/{file}*")]:
        shutil.copyfile(each, folder / each.name)
    return folder


def answers(folder: Path, token_ids: np.ndarray, segment_ids: np.ndarray) -> torch.Tensor:
    """What the class that the folder names gives; id 0 is padding. Triplets are scored text by text."""
    name = AutoConfig.from_pretrained(folder).architectures[0]
    model = getattr(modeling_roformer, name).from_pretrained(folder).eval()
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


@pytest.mark.parametrize(("name", "file", "options", "architecture"), CONVERTED)
def test_answers_are_those_of_keras(name, file, options, architecture, output, tmp_path):
    report = convert(legacy_folder(tmp_path, name, file), output, verify=True, **options)
    assert report.verified
    assert json.loads((output / "config.json").read_text())["architectures"] == [architecture]
    expected = np.load(FIXTURES / name / "reference.npz")
    found = answers(output, expected["token_ids"], expected["segment_ids"])
    real = expected["token_ids"] != 0 if found.ndim == 3 else slice(None)
    assert np.abs(expected["logits"][real]).max() > 0.3
    np.testing.assert_allclose(found.numpy()[real], expected["logits"][real], rtol=0, atol=2e-5)
    probabilities = ACTIVATIONS.get(name, lambda x: x)(found)
    np.testing.assert_allclose(probabilities.numpy()[real], expected["outputs"][real], rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["classification", "triplet", "v2_classification", "mlm", "nested", "wonezha"])
def test_both_forms_hold_the_same(name):
    hdf5, bundle = KerasHDF5(FIXTURES / name / HDF5), KerasBundle(FIXTURES / name / TENSOR_BUNDLE)
    model = {key for key in bundle.entries if not key.startswith("optimizer/")}
    assert model == hdf5.entries.keys()
    for key in model:
        array = hdf5.read(key)
        assert np.array_equal(array, bundle.read(key))
        assert b"".join(chunk.tobytes() for chunk in hdf5.chunks(key)) == array.tobytes()
