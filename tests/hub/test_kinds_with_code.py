"""Every kind of model, published with its code, loads where this package is not installed, and computes the same."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers.absent_package import ABSENT
from helpers.seq2seq_models import SIZES
from helpers.small_models import small_config

import modeling_roformer as ours
from modeling_roformer.hub.remote_code import files_with_code

V2 = {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}
SIM = {"is_decoder": True, "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"}
LINEAR = {"attention_type": "linear", "linear_feature_map": "softmax"}
# Class, Auto class, fields of the config, and the files that only some kinds need.
KINDS = {
    "plain": ("RoFormerForMaskedLM", "AutoModelForMaskedLM", {}, set()),
    "V2": ("RoFormerForMaskedLM", "AutoModelForMaskedLM", V2, set()),
    "classifier": ("RoFormerForSequenceClassification", "AutoModelForSequenceClassification", {}, set()),
    "Sim": ("RoFormerForCausalLM", "AutoModelForCausalLM", SIM, set()),
    "GPT": ("RoFormerForCausalLM", "AutoModelForCausalLM", {"is_decoder": True}, set()),
    "linear": ("RoFormerModel", "AutoModel", LINEAR, {"linear", "triplet"}),
    "linear GPT": (
        "RoFormerForCausalLM",
        "AutoModelForCausalLM",
        {**LINEAR, "is_decoder": True},
        {"linear", "triplet"},
    ),
    "Performer": ("RoFormerModel", "AutoModel", {**LINEAR, "linear_feature_map": "favor"}, {"linear", "triplet"}),
    "triplets": ("RoFormerForTripletMatching", "AutoModelForNextSentencePrediction", {}, {"triplet"}),
    "NEZHA": ("NezhaForMaskedLM", "AutoModelForMaskedLM", {}, {"nezha"}),
    "translation": ("RoFormerForConditionalGeneration", "AutoModelForSeq2SeqLM", {}, {"seq2seq"}),
}
LOAD = """
import importlib
from pathlib import Path

import numpy
import torch
import transformers

folder, auto_class, inputs, places = sys.argv[1], sys.argv[2], dict(numpy.load(sys.argv[3])), sys.argv[4:]
inputs = {name: torch.from_numpy(values) for name, values in inputs.items()}


def compute(place):
    model = getattr(transformers, auto_class).from_pretrained(place, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules."), type(model)
    with torch.no_grad():
        outputs = {"output": model(**inputs)[0]}
        if model.can_generate():
            outputs["ids"] = model.generate(**inputs, max_new_tokens=4, do_sample=False)
    return model, {name: x.numpy() for name, x in outputs.items()}


model, outputs = compute(folder)
numpy.savez(places[0], **outputs)
if len(places) > 1:
    model.save_pretrained(places[1])
    # Each file alone, as the first of its package.
    package = Path(places[2])
    sys.path.insert(0, str(package.parent))
    for path in sorted(package.glob("*.py")):
        for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
            del sys.modules[name]
        importlib.import_module(f"{package.name}.{path.stem}")
"""


def run_elsewhere(tmp_path, *arguments):
    command = [sys.executable, "-c", f"{ABSENT}{LOAD}", *map(str, arguments)]
    environment = {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PATH": ""}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr


def make_model(kind: str):
    class_name, _, fields, _ = KINDS[kind]
    cls = getattr(ours, class_name)
    torch.manual_seed(0)
    if kind == "translation":
        config = ours.RoFormerSeq2SeqConfig(**{**SIZES, "pad_token_id": 0, "eos_token_id": 3})
    else:
        config = small_config(cls.config_class, initializer_range=0.3, **fields)
    return cls(config).eval()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_loads_and_is_saved_without_this_package(tmp_path, kind):
    model, folder = make_model(kind), tmp_path / "model"
    model.save_pretrained(folder)
    for name, content in files_with_code(folder).items():
        (folder / name).write_bytes(content)
    package = tmp_path / "alone"
    package.mkdir()
    for path in folder.glob("*.py"):
        (package / path.name).write_bytes(path.read_bytes())
    (package / "__init__.py").touch()
    ids = torch.randint(5, 50, (2, 2, 9) if kind == "triplets" else (2, 9))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if kind == "translation":
        inputs["decoder_input_ids"] = ids[:, :3]
    np.savez(tmp_path / "inputs.npz", **{name: x.numpy() for name, x in inputs.items()})

    places = tmp_path / "first.npz", tmp_path / "again", package
    run_elsewhere(tmp_path, folder, KINDS[kind][1], tmp_path / "inputs.npz", *places)
    run_elsewhere(tmp_path, tmp_path / "again", KINDS[kind][1], tmp_path / "inputs.npz", tmp_path / "second.npz")
    with torch.no_grad():
        expected = {"output": model(**inputs)[0].numpy()}
        if model.can_generate():
            expected["ids"] = model.generate(**inputs, max_new_tokens=4, do_sample=False).numpy()
    for name in ("first.npz", "second.npz"):
        found = dict(np.load(tmp_path / name))
        assert found.keys() == expected.keys()
        for key, values in expected.items():
            np.testing.assert_allclose(found[key], values, atol=1e-5, rtol=0, err_msg=f"{name} {key}")


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_of_a_kind_is_published_only_with_it(tmp_path, kind):
    make_model(kind).save_pretrained(tmp_path)
    files = {name for name in files_with_code(tmp_path) if name.endswith(".py")}
    found = {part for part in ("linear", "nezha", "seq2seq", "triplet") if any(part in name for name in files)}
    assert found == KINDS[kind][3]
    assert json.loads(files_with_code(tmp_path)["config.json"])["auto_map"]["AutoConfig"]
