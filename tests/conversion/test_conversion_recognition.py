"""`--family auto` on every released checkpoint, and `--as roformer`."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.legacy_checkpoints import edit_config
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, BertForMaskedLM

from modeling_roformer import NezhaForMaskedLM, RoFormerForCausalLM, RoFormerForMaskedLM
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.formats.tensor_bundle import TensorBundle
from modeling_roformer.conversion.formats.tensor_bundle_writer import write_bundle
from modeling_roformer.conversion.inspection.info import info

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"

# Released archive: title, whether it is word-level, the fixture that has its variables, and the class it becomes.
RELEASES = {
    "chinese_roformer_L-12_H-768_A-12": ("RoFormer", True, "word", RoFormerForMaskedLM),
    "chinese_roformer_L-6_H-384_A-6": ("RoFormer", True, "word", RoFormerForMaskedLM),
    "chinese_roformer-char_L-12_H-768_A-12": ("RoFormer", False, "character", RoFormerForMaskedLM),
    "chinese_roformer-char_L-6_H-384_A-6": ("RoFormer", False, "character", RoFormerForMaskedLM),
    "chinese_roformer-gpt-char_L-12_H-768_A-12": ("RoFormer-GPT", False, "gpt", RoFormerForCausalLM),
    "chinese_roformer-sim-char_L-12_H-768_A-12": ("RoFormer-Sim", False, "sim", RoFormerForCausalLM),
    "chinese_roformer-sim-char_L-6_H-384_A-6": ("RoFormer-Sim", False, "sim", RoFormerForCausalLM),
    "chinese_roformer-sim-char-ft_L-12_H-768_A-12": ("RoFormer-Sim", False, "sim", RoFormerForCausalLM),
    "chinese_roformer-sim-char-ft_L-6_H-384_A-6": ("RoFormer-Sim", False, "sim", RoFormerForCausalLM),
    "chinese_roformer-v2-char_L-6_H-384_A-6": ("RoFormer-V2", False, "v2", RoFormerForMaskedLM),
    "chinese_roformer-v2-char_L-12_H-768_A-12": ("RoFormer-V2", False, "v2", RoFormerForMaskedLM),
    "chinese_roformer-v2-char_L-24_H-1024_A-16": ("RoFormer-V2", False, "v2", RoFormerForMaskedLM),
    "chinese_wobert_L-12_H-768_A-12": ("WoBERT", True, "wobert", BertForMaskedLM),
    "chinese_wobert_plus_L-12_H-768_A-12": ("WoBERT", True, "wobert_bert_order", BertForMaskedLM),
    "chinese_wonezha_L-12_H-768_A-12": ("WoNEZHA", True, "wonezha", NezhaForMaskedLM),
    "chinese_L-12_H-768_A-12": ("BERT", False, "wobert", BertForMaskedLM),
}
WIDTH = 64  # a stand-in for hidden sizes, so that a test takes no gigabytes; layers and heads are the released ones


def release(name: str, folder: Path) -> Path:
    """A checkpoint of random weights in the layers and heads that a released name says, of its fixture's variables."""
    _, word_level, fixture, _ = RELEASES[name]
    layers, heads = (int(re.search(rf"_{letter}-(\d+)", name)[1]) for letter in "LA")
    source = LEGACY / fixture
    config = json.loads((source / "bert_config.json").read_text())
    old = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    entries = (source / "vocab.txt").read_bytes().decode().removesuffix("\n").split("\n")
    if not word_level:
        entries = [entry for entry in entries if not re.fullmatch("[\u4e00-\u9fff]{2,}", entry)]
    width = WIDTH if WIDTH % heads == 0 and WIDTH // heads % 2 == 0 else 4 * heads
    sizes = dict(zip(old, (width, 2 * width, len(entries)), strict=True))
    config |= {"num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": width}
    config |= {"intermediate_size": 2 * width, "vocab_size": len(entries)}
    folder.mkdir()
    (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8", newline="\n")
    bundle, random = TensorBundle(source / "bert_model.ckpt"), np.random.default_rng(0)
    variables = {}
    for variable in bundle.entries:
        if variable.startswith(("global_step", "cls/seq_relationship")) or variable.endswith(("adam_m", "adam_v")):
            continue
        shape = tuple(sizes.get(size, size) for size in bundle.entries[variable].shape)
        if "/layer_1/" in variable:
            continue
        for i in range(layers if "/layer_0/" in variable else 1):
            variables[variable.replace("/layer_0/", f"/layer_{i}/")] = random.normal(size=shape).astype("f4")
    write_bundle(folder / "bert_model.ckpt", variables.items())
    return folder


@pytest.mark.parametrize("name", RELEASES)
def test_released_checkpoints_are_found(name, tmp_path):
    """Archives as published, which unpack into a folder of their name."""
    title, word_level, _, architecture = RELEASES[name]
    folder = release(name, tmp_path / name)
    archive = tmp_path / f"{name}.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for file in folder.iterdir():
            zipped.write(file, f"{name}/{file.name}")
    report = convert(archive, tmp_path / "output")
    assert (report.family, report.word_level) == (title, word_level)
    config = json.loads((tmp_path / "output" / "config.json").read_text())
    assert config["architectures"] == [architecture.__name__]
    assert config["num_hidden_layers"] == int(re.search(r"_L-(\d+)", name)[1]) == report.layers
    model, info = architecture.from_pretrained(tmp_path / "output", output_loading_info=True)
    assert not any(info.values()) and type(model) is architecture


# Configuration, name of the folder, the recognised family, and facts of the sign.
SIGNS = [
    ({}, "checkpoint", "RoFormer", ["table of positions", "pooler", "GPT", "NEZHA"]),
    ({}, "my-RoFormer-GPT", "RoFormer-GPT", ["name", "my-RoFormer-GPT"]),
    ({}, "WoNEZHA_2", "WoNEZHA", ["name", "WoNEZHA_2"]),
    ({"use_relative_position": True}, "checkpoint", "WoNEZHA", ["configuration", "use_relative_position"]),
    ({"max_relative_position": 32}, "roformer", "WoNEZHA", ["configuration", "max_relative_position"]),
    ({"use_relative_position": False}, "checkpoint", "RoFormer", ["pooler", "GPT", "NEZHA"]),
    ({"model_type": "nezha"}, "roformer", "WoNEZHA", ["configuration", "NEZHA"]),
    ({"model_type": "bert", "use_relative_position": True}, "bert", "WoNEZHA", ["configuration"]),
    ({"model_type": "bert"}, "nezha", "WoNEZHA", ["name", "nezha"]),
    ({"model_type": "roformer_gpt"}, "nezha", "RoFormer-GPT", ["configuration", "GPT"]),
    ({"model_type": "roformer"}, "nezha", "RoFormer", ["configuration", "RoFormer"]),
    ({"application": "lm"}, "checkpoint", "RoFormer-GPT", ["configuration", "causal", "lm"]),
    ({"application": "encoder"}, "gpt", "RoFormer", ["configuration", "encoder"]),
    ({"application": "encoder"}, "nezha_gpt", "WoNEZHA", ["name", "NEZHA"]),
    ({"is_decoder": False, "model_type": "roformer"}, "gpt-nezha", "RoFormer", ["configuration"]),
]


@pytest.mark.parametrize(("changes", "name", "title", "facts"), SIGNS)
def test_configuration_and_name_tell_families_with_the_same_variables(changes, name, title, facts, tmp_path):
    source = shutil.copytree(LEGACY / "word", tmp_path / name)
    edit_config(source, **changes)
    report = convert(source, tmp_path / "output")
    assert report.family == title
    assert_states(report.sign, *facts)
    assert not {"use_relative_position", "max_relative_position", "is_decoder"} & set(report.ignored_settings)
    if "max_relative_position" in changes:
        config = json.loads((tmp_path / "output" / "config.json").read_text())
        assert config["max_relative_position"] == changes["max_relative_position"]


# Fixture, name of the folder, configuration, options, and facts of the error, which names both of what disagree.
TABLE, NAMED = "table of positions", "its name"
CONTRADICTIONS = [
    ("wobert", "chinese_nezha_gpt_L-12_H-768_A-12", {}, {}, [TABLE, NAMED, "NEZHA", "--family wobert"]),
    ("wobert", "chinese_nezha_gpt", {}, {"family": "wobert"}, [NAMED, "GPT", "WoBERT", "causal mask"]),
    ("wobert", "bert_gpt", {}, {}, [TABLE, NAMED, "GPT", "causal mask", "--as roformer", "encoder"]),
    ("wobert", "checkpoint", {"model_type": "gpt"}, {}, ["WoBERT", "configuration", "GPT", "causal mask"]),
    ("wobert", "checkpoint", {"model_type": "gpt"}, {"family": "wobert"}, ["WoBERT", "GPT", "causal mask"]),
    ("wobert", "checkpoint", {"application": "lm"}, {"family": "wobert"}, ["WoBERT", "lm", "causal mask"]),
    ("wobert", "checkpoint", {"architectures": ["GPT2LMHeadModel"]}, {}, ["WoBERT", "GPT", "causal mask"]),
    ("wobert", "nezha", {}, {}, [TABLE, NAMED, "NEZHA", "--family wobert"]),
    ("wobert", "checkpoint", {"model_type": "nezha"}, {}, [TABLE, "configuration", "NEZHA", "--family wobert"]),
    ("wobert", "checkpoint", {"use_relative_position": True}, {}, [TABLE, "use_relative_position"]),
    ("wobert", "checkpoint", {"model_type": "roformer"}, {}, [TABLE, "configuration", "RoFormer"]),
    ("wobert", "chinese_simbert", {}, {}, [NAMED, "SIMBERT", "UniLM's mask"]),
    ("wonezha", "nezha_gpt_dialog", {}, {}, ["WoNEZHA", "NEZHA", "GPT", "causal mask", "--as roformer", "encoder"]),
    ("wonezha", "nezha_gpt_dialog", {}, {"family": "gpt"}, ["--family gpt", NAMED, "NEZHA", "--family wonezha"]),
    ("wonezha", "nezha_gpt_dialog", {}, {"family": "roformer"}, ["--family roformer", NAMED, "NEZHA"]),
    ("wonezha", "nezha_gpt_dialog", {}, {"family": "wonezha"}, ["WoNEZHA", NAMED, "GPT", "causal mask"]),
    ("wonezha", "gpt", {"max_relative_position": 64}, {}, ["WoNEZHA", "max_relative_position", NAMED, "GPT"]),
    ("wonezha", "gpt", {"model_type": "nezha"}, {"family": "gpt"}, ["--family gpt", "configuration", "NEZHA"]),
    ("wonezha", "checkpoint", {"model_type": "bert"}, {}, [TABLE, "configuration", "BERT", "--family wonezha"]),
    ("wonezha", "checkpoint", {"model_type": "bert"}, {"family": "roformer"}, ["--family roformer", "BERT"]),
    ("word", "checkpoint", {"model_type": "roformer"}, {"family": "wonezha"}, ["--family wonezha", "RoFormer"]),
    ("word", "simbert", {}, {}, [TABLE, NAMED, "SIMBERT"]),
    ("word", "nezha-or-simbert", {}, {}, [NAMED, "NEZHA", "SIMBERT"]),
    ("word", "checkpoint", {"model_type": "roformer", "use_relative_position": True}, {}, ["RoFormer"]),
    ("pooler", "roformer-gpt", {}, {}, ["pooler", NAMED, "GPT", '"application": "lm"', '"application": "unilm"']),
    ("v2", "roformer-gpt", {}, {}, ["RoFormer-V2", NAMED, "GPT", '"application": "lm"', '"application": "encoder"']),
    ("v2", "roformer-gpt", {}, {"family": "v2"}, ["RoFormer-V2", NAMED, "GPT"]),
    ("v2", "nezha", {}, {}, ["biases", NAMED, "NEZHA", "--family v2"]),
    ("word", "checkpoint", {"application": "LM"}, {}, ["bert_config.json", "application", "'LM'", "lm"]),
    ("gpt", "checkpoint", {"application": "encoder"}, {"family": "gpt"}, ["RoFormer-GPT", "encoder"]),
]


@pytest.mark.parametrize(("fixture", "name", "changes", "options", "facts"), CONTRADICTIONS)
def test_signs_of_different_models_are_refused(fixture, name, changes, options, facts, tmp_path):
    source = shutil.copytree(LEGACY / fixture, tmp_path / name)
    edit_config(source, **changes)
    with refused(CheckpointError, *facts):
        convert(source, tmp_path / "output", **options)
    assert not (tmp_path / "output").exists()


# Fixture, name of the folder, configuration, options, the family, and whether a token attends to later ones.
WAYS_OUT = [
    ("wobert", "chinese_nezha_gpt", {"application": "encoder"}, {"family": "wobert"}, "WoBERT", True),
    ("wonezha", "nezha_gpt_dialog", {"application": "encoder"}, {}, "WoNEZHA", True),
    ("wonezha", "nezha_gpt_dialog", {}, {"as_family": "roformer"}, "WoNEZHA", False),
    ("wobert", "bert_gpt", {}, {"as_family": "roformer"}, "WoBERT", False),
    ("wobert", "checkpoint", {"model_type": "gpt"}, {"as_family": "roformer"}, "WoBERT", False),
    ("wobert", "nezha", {}, {"family": "wobert"}, "WoBERT", True),
    ("wonezha", "checkpoint", {"model_type": "bert"}, {"family": "wonezha"}, "WoNEZHA", True),
    ("v2", "roformer-gpt", {"application": "lm"}, {}, "RoFormer-V2", False),
    ("v2", "roformer-gpt", {"application": "encoder"}, {}, "RoFormer-V2", True),
    ("gpt", "roformer-gpt", {}, {"family": "roformer"}, "RoFormer", True),
    ("gpt", "checkpoint", {"model_type": "gpt"}, {}, "RoFormer-GPT", False),
    ("gpt", "checkpoint", {}, {"family": "gpt"}, "RoFormer-GPT", False),
]


@pytest.mark.parametrize(("fixture", "name", "changes", "options", "title", "reads_ahead"), WAYS_OUT)
def test_the_ways_out_that_the_errors_name(fixture, name, changes, options, title, reads_ahead, tmp_path):
    source = shutil.copytree(LEGACY / fixture, tmp_path / name)
    edit_config(source, **changes)
    assert convert(source, tmp_path / "output", **options).family == title
    kind = AutoModelForMaskedLM if reads_ahead else AutoModelForCausalLM
    model = kind.from_pretrained(tmp_path / "output").eval()
    ids = torch.tensor([[2, 30, 17, 99, 45, 101, 12, 3], [2, 30, 17, 99, 45, 101, 12, 4]])
    with torch.inference_mode():
        first, second = model(ids).logits[:, :-1]
    assert (first - second).abs().max() > 1e-3 if reads_ahead else torch.equal(first, second)


def test_a_link_has_two_names(tmp_path):
    """Either may say what the checkpoint is; `info` reads both too."""
    shutil.copytree(LEGACY / "wonezha", tmp_path / "nezha_gpt" / "1")
    (tmp_path / "roformer-gpt").symlink_to(tmp_path / "nezha_gpt" / "1")
    assert convert(tmp_path / "nezha_gpt" / "1", tmp_path / "output").family == "RoFormer"  # a parent says nothing
    assert convert(tmp_path / "roformer-gpt", tmp_path / "gpt").family == "RoFormer-GPT"
    assert info(tmp_path / "roformer-gpt").family == "RoFormer-GPT"


@pytest.mark.parametrize(("name", "title"), [("gpt.zip", "RoFormer-GPT"), ("1.zip", "RoFormer")])
def test_names_of_archives(name, title, tmp_path):
    with zipfile.ZipFile(tmp_path / name, "w") as zipped:
        for file in (LEGACY / "gpt").iterdir():
            zipped.write(file, f"nezha/checkpoint/{file.name}")
    assert convert(tmp_path / name, tmp_path / "output").family == title == info(tmp_path / name).family


def test_the_pooler_of_a_nezha_is_left_out(tmp_path):
    source = shutil.copytree(LEGACY / "pooler", tmp_path / "nezha")
    report = convert(source, tmp_path / "output", verify=True)
    assert report.family == "WoNEZHA" and "pooler" in report.extras


@pytest.mark.parametrize("fields", [{"application": "unilm"}, {"application": "lm"}, {"is_decoder": True}])
def test_a_mask_does_not_overrule_the_name_of_a_wonezha(fields, tmp_path):
    folder = shutil.copytree(LEGACY / "wonezha", tmp_path / "chinese_wonezha_L-12_H-768_A-12")
    edit_config(folder, **fields)
    with refused(CheckpointError, "WoNEZHA", "mask", "--as roformer"):
        convert(folder, tmp_path / "output")


# Fixture, family that does not fit it, and those that do.
MISFITS = [
    ("word", "v2", ["biases", "layer norms", "--family roformer", "--family gpt", "--family wonezha"]),
    ("word", "sim", ["table of positions", "pooler", "--family roformer"]),
    ("word", "wobert", ["table of positions", "pooler", "--family roformer"]),
    ("v2", "roformer", ["biases", "layer norms", "--family v2"]),
    ("sim", "gpt", ["pooler", "table of positions", "--family sim"]),
    ("wobert", "roformer", ["table of positions", "BERT", "--family wobert"]),
    ("wobert", "wonezha", ["table of positions", "BERT", "--family wobert"]),
]


@pytest.mark.parametrize(("fixture", "family", "facts"), MISFITS)
def test_a_family_that_does_not_fit(fixture, family, facts, tmp_path):
    with refused(CheckpointError, LEGACY / fixture / "bert_model.ckpt.index", f"--family {family}", *facts):
        convert(LEGACY / fixture, tmp_path / "output", family=family)
    assert not (tmp_path / "output").exists()


# A BERT as a start.


@pytest.mark.parametrize("fixture", ["wobert", "wobert_bert_order", "wonezha"])
def test_a_roformer_starts_from_a_bert(fixture, tmp_path):
    """TensorFlow's, and the same in PyTorch."""
    convert(LEGACY / fixture, tmp_path / "bert")
    positions = "bert/embeddings/position_embeddings"
    sources = {tmp_path / "bert": f"{positions.replace('/', '.')}.weight", LEGACY / fixture: positions}
    for source, table in sources.items():
        report = convert(source, tmp_path / "start", as_family="roformer", verify=True, force=True)
        assert report.extras.get("table of positions") == ([table] if fixture != "wonezha" else None)
        assert_is_a_start(report, tmp_path, fixture)


def assert_is_a_start(report, tmp_path, fixture):
    assert report.family == ("WoNEZHA" if fixture == "wonezha" else "WoBERT")
    assert_states(report.written_as, report.family, "positions")
    assert report.written_as in (tmp_path / "start" / "README.md").read_text(encoding="utf-8")

    model, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "start", output_loading_info=True)
    assert type(model) is RoFormerForMaskedLM and not any(info.values())
    config = json.loads((tmp_path / "start" / "config.json").read_text())
    assert (config["model_type"], config["max_position_embeddings"]) == ("roformer", 1536)
    bert = load_file(tmp_path / "bert" / "model.safetensors")
    start = load_file(tmp_path / "start" / "model.safetensors")
    bert.pop("bert.embeddings.position_embeddings.weight", None)
    assert len(start) == len(bert) > 20
    for key, tensor in bert.items():
        assert torch.equal(start[re.sub("^(bert|nezha)", "roformer", key)], tensor)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "start")
    assert tokenizer.model_max_length > 1e6
    ids = tokenizer("听见明月，" * 40, return_tensors="pt")  # longer than the table of positions was
    model(**ids, labels=ids["input_ids"]).loss.backward()
    assert model.roformer.encoder.layer[0].attention.self.query.weight.grad.abs().max() > 0


@pytest.mark.parametrize(("fixture", "title"), [("word", "RoFormer"), ("v2", "RoFormer-V2"), ("sim", "RoFormer-Sim")])
def test_only_a_bert_is_a_start(fixture, title, tmp_path):
    with refused(CheckpointError, title, "--as roformer", "WoBERT", "WoNEZHA"):
        convert(LEGACY / fixture, tmp_path / "output", as_family="roformer")
    with refused(CheckpointError, "'gpt'", "roformer"):
        convert(LEGACY / "wobert", tmp_path / "output", as_family="gpt")
    assert not (tmp_path / "output").exists()
