"""Every family from every format that can hold it: the class, the configuration, the tokenizer, and one answer.

A family's checkpoints have the same numbers in every format, so all of them give one model, which is compared with a
model that is made of the numbers without the converter.
"""

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest
import torch
from helpers.command_line import ROFORMER
from helpers.family_checkpoints import (
    BARE,
    CLS,
    ENTRIES,
    FORMATS,
    LENGTH,
    PYTORCH,
    SEP,
    TENSORFLOW,
    state_dict,
    write_checkpoint,
)
from helpers.messages import assert_states, refused
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, BertForMaskedLM

from modeling_roformer import NezhaForMaskedLM, RoFormerForCausalLM, RoFormerForMaskedLM
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError

BERT4KERAS, TRANSFORMERS, BERT4TORCH = "bert_config.json", "config.json", "bert4torch_config.json"
TEXT = "明月，听见风"
WORDS = [ENTRIES.index(word) for word in ("明月", "，", "听见", "风")]
PLAIN = {
    "is_decoder": False,
    "prefix_lm": False,
    "add_pooling_layer": False,
    "norm_type": "layer_norm",
    "use_bias": True,
    "max_position_embeddings": 1536,
}
ENDLESS = {"bos_token_id": None, "eos_token_id": None}
UNILM = {"is_decoder": True, "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"}
# Result: the class, and fields of its configuration. Where a field is not in config.json, the class's default is meant.
RESULTS = {
    "roformer": (RoFormerForMaskedLM, PLAIN | ENDLESS),
    "gpt": (RoFormerForCausalLM, PLAIN | {"is_decoder": True, "bos_token_id": CLS, "eos_token_id": SEP}),
    "sim": (RoFormerForCausalLM, PLAIN | UNILM | {"bos_token_id": None, "eos_token_id": SEP}),
    "v2": (RoFormerForMaskedLM, PLAIN | ENDLESS | {"norm_type": "rms_norm", "use_bias": False}),
    "wobert": (BertForMaskedLM, {"is_decoder": False, "max_position_embeddings": LENGTH}),
    "simbert": (
        RoFormerForCausalLM,
        PLAIN | UNILM | {"position_encoding": "learned", "max_position_embeddings": LENGTH, "eos_token_id": SEP},
    ),
    "wonezha": (NezhaForMaskedLM, ENDLESS | {"max_relative_position": 64, "add_pooling_layer": False}),
}
TITLES = {
    "roformer": "RoFormer",
    "gpt": "RoFormer-GPT",
    "sim": "RoFormer-Sim",
    "v2": "RoFormer-V2",
    "wobert": "WoBERT",
    "simbert": "SimBERT",
    "wonezha": "WoNEZHA",
}
DECODERS = ("gpt", "sim", "simbert")
CLASS_PREFIXES = dict.fromkeys(RESULTS, "roformer.") | {"wobert": "bert.", "wonezha": "nezha."}


@cache
def reference(weights: str, result: str):
    """Make the model of a family's numbers without the converter."""
    kind, fields = RESULTS[result]
    model = kind(kind.config_class(**BARE | {"pad_token_id": 0, "layer_norm_eps": 1e-12} | fields))
    state = state_dict(weights, CLASS_PREFIXES[result])
    if not fields.get("add_pooling_layer"):
        state = {key: tensor for key, tensor in state.items() if ".pooler." not in key}
    found = model.load_state_dict(state, strict=False)
    assert not found.unexpected_keys and set(found.missing_keys) <= set(model.all_tied_weights_keys)
    model.tie_weights()
    return model.eval()


@cache
def greedy(weights: str, result: str) -> list[int]:
    """Return the most likely tokens after the prompt up to [SEP], by the whole forward pass at each step."""
    model, prompt = reference(weights, result), [CLS, *WORDS, *[SEP] * (result != "gpt")]
    ids, segments, new = [*prompt], [0] * len(prompt), []
    while len(new) < 8 and SEP not in new:
        with torch.inference_mode():
            logits = model(torch.tensor([ids]), token_type_ids=torch.tensor([segments]), use_cache=False).logits
        new.append(logits[0, -1].argmax().item())
        ids, segments = [*ids, new[-1]], [*segments, int(result != "gpt")]  # UniLM's answer has segment 1
    assert 2 < len(new) < 8 and len(set(new)) > 2  # it stops by itself, and says something
    return new


def assert_is(result: str, weights: str, folder: Path) -> None:
    """Check that a folder holds a result of these weights: class, configuration, tokenizer and answer."""
    kind, fields = RESULTS[result]
    auto_class = AutoModelForCausalLM if result in DECODERS else AutoModelForMaskedLM
    model, info = auto_class.from_pretrained(folder, output_loading_info=True)
    assert type(model) is kind and not any(info.values())
    stated = json.loads((folder / TRANSFORMERS).read_text(encoding="utf-8"))
    assert stated["architectures"] == [kind.__name__]
    assert {name: getattr(model.config, name) for name in fields} == fields
    assert (model.config.pad_token_id, model.config.layer_norm_eps) == (0, 1e-12)
    assert "is_decoder" not in stated or stated["is_decoder"] == (result in DECODERS)

    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXT, return_tensors="pt")
    assert inputs.input_ids[0].tolist() == [CLS, *WORDS, *[SEP] * (result != "gpt")]
    if result == "gpt":
        assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (CLS, SEP)
    has_table = result in ("wobert", "simbert")
    assert tokenizer.model_max_length == LENGTH if has_table else tokenizer.model_max_length > 1e6
    if result in DECODERS:
        assert model.generation_config.eos_token_id == SEP
        new = model.generate(**inputs, max_new_tokens=20, do_sample=False)[0, inputs.input_ids.shape[1] :]
        assert new.tolist() == greedy(weights, result)
    expected = reference(weights, result)
    with torch.inference_mode():
        found, wanted = (each.eval()(**inputs).logits for each in (model, expected))
    assert torch.equal(found, wanted) and found.std() > 0.1


# Signs of families whose variables are a RoFormer's.
GPT_SIGNS = [
    {"model_type": "roformer", "is_decoder": True},
    {"application": "lm"},
    {"model": "gpt"},
]
NEZHA_SIGNS = [
    {"model": "nezha"},
    {"model_type": "nezha"},
    {"use_relative_position": True},
    {"max_relative_position": 64},
    {"architectures": ["NezhaForMaskedLM"]},
]
MIXED = {"model_type": "roformer", "use_relative_position": True}
# A format of each kind, with every prefix of keys. Keys of "open" formats say nothing of the family.
EACH = ("tensorflow", "hdf5", "bin", "safetensors of model.", "bin without a prefix", "safetensors of bert.")
OPEN = ("tensorflow", "bin without a prefix", "safetensors of bert.")
NOT_HDF5 = tuple(form for form in FORMATS if form != "hdf5")  # whose layers tell the mask
EACH_NOT_HDF5 = tuple(form for form in EACH if form != "hdf5")
# Weights, file and fields of the configuration, --family, the result, and the formats.
TABLE = [
    *[(family, BERT4KERAS, {}, family, family, FORMATS) for family in RESULTS],
    ("gpt", BERT4KERAS, {}, "roformer", "roformer", NOT_HDF5),
    ("sim", BERT4KERAS, {}, "roformer", "roformer", NOT_HDF5),
    ("wonezha", BERT4KERAS, {}, "roformer", "roformer", OPEN),
    # The tensors alone.
    ("roformer", BERT4KERAS, {}, "auto", "roformer", FORMATS),
    ("gpt", BERT4KERAS, {}, "auto", "gpt", ("hdf5",)),
    ("sim", BERT4KERAS, {}, "auto", "sim", TENSORFLOW),
    ("v2", BERT4KERAS, {}, "auto", "v2", FORMATS),
    ("wobert", BERT4KERAS, {}, "auto", "wobert", FORMATS),
    ("simbert", BERT4KERAS, {}, "auto", "simbert", ("hdf5",)),
    ("simbert", BERT4KERAS, {}, "auto", "wobert", NOT_HDF5),
    ("wonezha", BERT4KERAS, {}, "auto", "wonezha", tuple(form for form in FORMATS if form not in OPEN)),
    ("wonezha", BERT4KERAS, {}, "auto", "roformer", OPEN),
    # What the configuration states.
    ("roformer", TRANSFORMERS, {"model_type": "roformer"}, "auto", "roformer", EACH),
    ("roformer", TRANSFORMERS, {"architectures": ["RoFormerForMaskedLM"]}, "auto", "roformer", EACH),
    *[("gpt", TRANSFORMERS, fields, "auto", "gpt", EACH) for fields in GPT_SIGNS],
    ("gpt", BERT4KERAS, {"model": "gpt"}, "auto", "gpt", OPEN),
    ("sim", TRANSFORMERS, {"model_type": "roformer", "pooler_activation": "linear"}, "auto", "sim", EACH),
    ("sim", TRANSFORMERS, {"model_type": "roformer", "prefix_lm": True}, "auto", "sim", EACH),
    ("sim", TRANSFORMERS, {"model_type": "roformer", "is_decoder": True}, "sim", "sim", EACH),
    ("v2", TRANSFORMERS, {"model_type": "roformer", "norm_type": "rms_norm", "use_bias": False}, "auto", "v2", EACH),
    ("v2", TRANSFORMERS, {"model_type": "roformer"}, "auto", "v2", EACH),
    ("v2", TRANSFORMERS, {"model": "roformer_v2"}, "auto", "v2", EACH),
    ("v2", BERT4KERAS, {"model": "roformer_v2"}, "v2", "v2", OPEN),
    ("wobert", TRANSFORMERS, {"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "auto", "wobert", EACH),
    ("simbert", TRANSFORMERS, {"model": "simbert"}, "auto", "simbert", EACH),
    *[("wonezha", TRANSFORMERS, fields, "auto", "wonezha", EACH) for fields in NEZHA_SIGNS],
    ("wonezha", BERT4KERAS, {"model": "nezha"}, "auto", "wonezha", OPEN),
    ("wonezha", BERT4TORCH, {"model": "nezha"}, "auto", "wonezha", OPEN[1:]),
    ("v2", BERT4TORCH, {"model": "roformer_v2"}, "auto", "v2", OPEN[1:]),
]
CASES = [(*row, form) for *row, forms in TABLE for form in forms]


def title(weights: str, form: str, file: str, fields: dict, family: str, end: str) -> str:
    """Return the name of a case."""
    stated = " ".join(f"{key}={json.dumps(value)}" for key, value in fields.items())
    return f"{weights} in {form}, {file} {stated or 'bare'}, {family}: {end}"


@pytest.mark.parametrize(
    ("weights", "file", "fields", "family", "result", "form"),
    CASES,
    ids=[title(weights, form, *rest) for weights, *rest, form in CASES],
)
def test_every_family_from_every_format(weights, file, fields, family, result, form, tmp_path):
    source = write_checkpoint(tmp_path / "checkpoint", weights, form, BARE | fields, file)
    report = convert(source, tmp_path / "output", family=family)
    assert report.family == TITLES[result] and report.architecture == RESULTS[result][0].__name__
    if weights in ("sim", "simbert") and result != weights:
        assert len(report.extras["pooler"]) == 2
    if (weights, result) == ("simbert", "wobert"):
        assert_states(report.rows["pooler"], "--family simbert")
    assert_is(result, weights, tmp_path / "output")


@pytest.mark.parametrize("family", RESULTS)
def test_every_format_gives_the_same_folder(family, tmp_path):
    """Compare all files but the model card, which names the source. The usual sides of a tokenizer may be left out."""
    sides = {"padding_side": "right", "truncation_side": "right"}
    found = {}
    for form in FORMATS:
        source = write_checkpoint(tmp_path / f"{form} checkpoint", family, form, BARE)
        output = tmp_path / f"{form} output"
        convert(source, output, family=family)
        files = {path.relative_to(output): json.loads(path.read_bytes()) for path in output.rglob("*.json")}
        files[Path("tokenizer_config.json")] = sides | files[Path("tokenizer_config.json")]
        files |= {path.relative_to(output): path.read_bytes() for path in output.rglob("*.txt")}
        tensors = {path.relative_to(output): load_file(path) for path in output.rglob("*.safetensors")}
        found[form] = files, tensors
    files, tensors = found["tensorflow"]
    assert {"config.json", "tokenizer_config.json", "tokenizer.json", "vocab.txt"} <= {path.name for path in files}
    for form, (other_files, other_tensors) in found.items():
        assert other_files == files, form
        assert other_tensors.keys() == tensors.keys()
        for path, expected in tensors.items():
            assert other_tensors[path].keys() == expected.keys()
            assert all(torch.equal(other_tensors[path][key], tensor) for key, tensor in expected.items())


# Weights, formats, file and fields of the configuration, --family, name of the folder, and facts of the error.
POSITIONS = "table of positions"
QUESTION = ["--family sim", "--family roformer", "pooler_activation"]
TWO_FAMILIES = ["--family gpt", "--family wonezha"]
REFUSED = [
    ("sim", PYTORCH, BERT4KERAS, {}, "auto", "checkpoint", QUESTION),
    ("sim", PYTORCH, TRANSFORMERS, {"model_type": "roformer", "is_decoder": True}, "auto", "checkpoint", QUESTION),
    ("sim", EACH, BERT4KERAS, {}, "gpt", "checkpoint", ["pooler", "--family gpt", "--family sim"]),
    ("v2", FORMATS, BERT4KERAS, {}, "roformer", "checkpoint", ["biases", "--family roformer", "--family v2"]),
    ("v2", EACH, BERT4KERAS, {}, "gpt", "checkpoint", ["biases", "--family gpt", "--family v2"]),
    ("roformer", EACH, BERT4KERAS, {}, "v2", "checkpoint", ["biases", "--family v2", "--family roformer"]),
    ("roformer", EACH, BERT4KERAS, {}, "wobert", "checkpoint", [POSITIONS, "--family wobert", "--family roformer"]),
    ("roformer", EACH, BERT4KERAS, {}, "sim", "checkpoint", ["pooler", "--family sim", "--family roformer"]),
    ("roformer", OPEN, TRANSFORMERS, {"model_type": "bert"}, "auto", "checkpoint", [POSITIONS, "BERT"]),
    ("wobert", FORMATS, BERT4KERAS, {}, "gpt", "checkpoint", [POSITIONS, "--family gpt", "--family wobert"]),
    ("wobert", EACH, BERT4KERAS, {}, "wonezha", "checkpoint", [POSITIONS, "--family wonezha", "--family wobert"]),
    ("wobert", EACH, BERT4KERAS, {}, "roformer", "checkpoint", [POSITIONS, "--family roformer", "--family wobert"]),
    ("wobert", EACH_NOT_HDF5, BERT4KERAS, {"model": "gpt"}, "auto", "checkpoint", ["GPT", "causal mask"]),
    ("wobert", EACH, BERT4KERAS, {"model": "nezha"}, "auto", "checkpoint", [POSITIONS, "NEZHA"]),
    ("wobert", EACH, BERT4KERAS, {}, "auto", "nezha", [POSITIONS, "nezha", "NEZHA"]),
    ("wobert", EACH_NOT_HDF5, BERT4KERAS, {}, "auto", "bert-gpt", ["bert-gpt", "GPT", "causal mask"]),
    ("wonezha", ("hdf5", "tf.keras", "bin"), BERT4KERAS, {}, "gpt", "checkpoint", TWO_FAMILIES),
    *[("wonezha", EACH, TRANSFORMERS, fields, "gpt", "checkpoint", TWO_FAMILIES) for fields in NEZHA_SIGNS],
    ("wonezha", OPEN, BERT4KERAS, {}, "gpt", "nezha", ["--family gpt", "nezha", "NEZHA"]),
    ("wonezha", ("tf.keras", "bin"), BERT4KERAS, {}, "auto", "roformer-gpt", ["WoNEZHA", "roformer-gpt", "GPT"]),
    ("wonezha", OPEN, TRANSFORMERS, MIXED, "auto", "checkpoint", ["use_relative_position", "RoFormer"]),
    ("v2", (*OPEN, "hdf5"), BERT4KERAS, {}, "auto", "nezha", ["biases", "nezha", "NEZHA", "--family v2"]),
    ("v2", EACH_NOT_HDF5, BERT4KERAS, {}, "auto", "roformer-gpt", ["RoFormer-V2", "roformer-gpt", "GPT"]),
]
REFUSED_CASES = [(weights, form, *rest) for weights, forms, *rest in REFUSED for form in forms]


@pytest.mark.parametrize(
    ("weights", "form", "file", "fields", "family", "name", "facts"),
    REFUSED_CASES,
    ids=[title(*case, f"refused in {name}") for *case, name, _ in REFUSED_CASES],
)
def test_contradictions_are_refused(weights, form, file, fields, family, name, facts, tmp_path):
    source = write_checkpoint(tmp_path / name, weights, form, BARE | fields, file)
    with refused(CheckpointError, *facts):
        convert(source, tmp_path / "output", family=family)
    assert not (tmp_path / "output").exists()


# Weights, name of the folder, fields of config.json, the result, and the formats.
NAMED = [
    ("gpt", "chinese_roformer-gpt", {}, "gpt", OPEN),
    ("wonezha", "chinese_wonezha", {}, "wonezha", OPEN),
    ("gpt", "chinese_roformer-gpt", {"architectures": ["RoFormerForMaskedLM"]}, "roformer", OPEN[1:]),
    ("wobert", "nezha", {"architectures": ["BertForMaskedLM"]}, "wobert", OPEN[1:]),
    ("roformer", "nezha", {"architectures": ["RoFormerForMaskedLM"]}, "roformer", OPEN[1:]),
    ("v2", "roformer-gpt", {"architectures": ["RoFormerForMaskedLM"]}, "v2", OPEN[1:]),
]
NAMED_CASES = [(*row, form) for *row, forms in NAMED for form in forms]


@pytest.mark.parametrize(
    ("weights", "name", "fields", "result", "form"),
    NAMED_CASES,
    ids=[
        f"{weights} in {form} in {name}, {'class' if fields else 'no class'}: {result}"
        for weights, name, fields, result, form in NAMED_CASES
    ],
)
def test_a_name_decides_what_is_open_and_a_stated_class_decides_over_it(weights, name, fields, result, form, tmp_path):
    source = write_checkpoint(tmp_path / name, weights, form, BARE | fields, TRANSFORMERS if fields else BERT4KERAS)
    assert convert(source, tmp_path / "output").family == TITLES[result]
    assert_is(result, weights, tmp_path / "output")


# Family, and fields of config.json that are kept.
STATED = [
    ("roformer", {"layer_norm_eps": 1e-5}),
    ("gpt", {"bos_token_id": 7, "eos_token_id": 8, "layer_norm_eps": 1e-5}),
    ("sim", {"eos_token_id": 8, "layer_norm_eps": 1e-5}),
    ("v2", {"layer_norm_eps": 1e-5}),
    ("wobert", {"layer_norm_eps": 1e-5}),
    ("simbert", {"eos_token_id": 8, "layer_norm_eps": 1e-5}),
    ("wonezha", {"bos_token_id": 7, "eos_token_id": 8, "layer_norm_eps": 1e-5}),
]


@pytest.mark.parametrize("form", ["tensorflow", "bin"])
@pytest.mark.parametrize(("family", "fields"), STATED, ids=[family for family, _ in STATED])
def test_stated_values_are_kept(family, fields, form, tmp_path):
    source = write_checkpoint(tmp_path / "checkpoint", family, form, BARE | fields, TRANSFORMERS)
    convert(source, tmp_path / "output", family=family)
    config = AutoConfig.from_pretrained(tmp_path / "output")
    assert {name: getattr(config, name) for name in fields} == fields


@pytest.mark.parametrize("form", ["tensorflow", "bin"])
def test_stated_settings_of_tokenizer_and_generation_are_kept(form, tmp_path):
    source = write_checkpoint(tmp_path / "checkpoint", "gpt", form, BARE)
    generation = {"eos_token_id": 8, "max_new_tokens": 3}
    (source / "generation_config.json").write_text(json.dumps(generation))
    (source / "tokenizer_config.json").write_text(json.dumps({"add_sep_token": True}))
    convert(source, tmp_path / "output", family="gpt")
    assert json.loads((tmp_path / "output" / "generation_config.json").read_text()) == generation
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "output")
    assert tokenizer.add_sep_token and tokenizer(TEXT).input_ids == [CLS, *WORDS, SEP]


# Single cases.


@pytest.mark.parametrize("form", ["tensorflow", "tf.keras", "bin", "safetensors of bert."])
@pytest.mark.parametrize("fields", [{}, {"architectures": ["RoFormerForCausalLM"]}], ids=["bare", "class"])
def test_no_later_token_moves_the_logits_of_a_requested_gpt(fields, form, tmp_path):
    file = TRANSFORMERS if fields else BERT4KERAS
    source = write_checkpoint(tmp_path / "checkpoint", "gpt", form, BARE | fields, file)
    convert(source, tmp_path / "output", family="gpt")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "output").eval()
    assert json.loads((tmp_path / "output" / "config.json").read_text())["is_decoder"] is True
    with torch.inference_mode():
        first, second = model(torch.tensor([[CLS, *WORDS, 9], [CLS, *WORDS, 10]])).logits
    assert torch.equal(first[:-1], second[:-1]) and not torch.equal(first[-1], second[-1])


@pytest.mark.parametrize("form", ["tensorflow", "bin", "safetensors of bert."])
def test_the_pooler_of_a_nezha_is_left_out(form, tmp_path):
    source = write_checkpoint(tmp_path / "checkpoint", "wonezha", form, BARE | {"model": "nezha"}, with_pooler=True)
    report = convert(source, tmp_path / "output")
    assert report.family == TITLES["wonezha"] and len(report.extras["pooler"]) == 2
    assert_is("wonezha", "wonezha", tmp_path / "output")


def test_keys_of_a_roformer_contradict_a_bert(tmp_path):
    source = write_checkpoint(tmp_path / "checkpoint", "wobert", "bin", BARE)
    torch.save(state_dict("wobert", "roformer."), source / "pytorch_model.bin")
    with refused(CheckpointError, source / "pytorch_model.bin"):
        convert(source, tmp_path / "output")
    assert not (tmp_path / "output").exists()


# The command.


@pytest.mark.slow
@pytest.mark.parametrize("form", ["tensorflow", "safetensors of bert."])
def test_the_command_converts_a_requested_family(form, tmp_path):
    source = write_checkpoint(tmp_path / "checkpoint", "gpt", form, BARE)
    command = [ROFORMER, "convert", source, tmp_path / "output", "--family", "gpt"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert_is("gpt", "gpt", tmp_path / "output")


@pytest.mark.slow
def test_the_command_asks_what_a_pooler_is(tmp_path):
    source = write_checkpoint(tmp_path / "checkpoint", "sim", "bin", BARE)
    command = [ROFORMER, "convert", source, tmp_path / "output"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
    assert_states(done.stderr, *QUESTION)
    assert not (tmp_path / "output").exists()


def test_bert4torch_names_the_family_beside_the_configuration_of_transformers(tmp_path):
    source = write_checkpoint(tmp_path / "checkpoint", "wonezha", "bin without a prefix", BARE, TRANSFORMERS)
    (source / BERT4TORCH).write_text(json.dumps({"model": "nezha", "hidden_size": 1}))
    convert(source, tmp_path / "output")
    assert_is("wonezha", "wonezha", tmp_path / "output")
