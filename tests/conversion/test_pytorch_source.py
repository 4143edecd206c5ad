"""`roformer convert` of PyTorch checkpoints: every format and head against transformers' own models, and bad files."""

import copy
import io
import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import torch
import transformers
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
)

import modeling_roformer
from modeling_roformer import RoFormerConfig, RoFormerForCausalLM, RoFormerForMaskedLM, RoFormerTokenizer
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.inspection.info import info

WORDS = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
CHARACTERS = REPOSITORY / "tests" / "fixtures" / "legacy" / "character" / "vocab.txt"
ENTRIES = WORDS.read_text(encoding="utf-8").removesuffix("\n").split("\n")
SIZES = dict(
    vocab_size=len(ENTRIES),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=64,
)
THEIRS = transformers.models.roformer
WEIGHT = "roformer.encoder.layer.1.output.dense.weight"
TABLE = "roformer.encoder.embed_positions.weight"
DECODER = "cls.predictions.decoder.weight"
FORMS = ["zip", "old", "sharded bin", "safetensors", "sharded safetensors"]
IDS = torch.tensor([[2, 30, 7, 60, 149, 3], [2, 31, 8, 3, 0, 0]])


def made(kind, config, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    model = kind(config)
    for parameter in model.parameters():
        if parameter.requires_grad:  # a table of sinusoids stays one
            torch.nn.init.normal_(parameter, std=0.3)
    return model.to(dtype).eval()


def save(model, folder, form="zip", state=None, vocab=WORDS, tokenizer_class="RoFormerTokenizer", **fields):
    """A folder as old versions of transformers left it: config.json, vocab.txt, and the whole state dict."""
    model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | {"architectures": [type(model).__name__]} | fields
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "missing"}))
    shutil.copy(vocab, folder / "vocab.txt")
    old = {
        "tokenizer_class": tokenizer_class,
        "do_lower_case": True,
        "never_split": None,
        "name_or_path": "/home/someone/x",
        "special_tokens_map_file": "/home/someone/special_tokens_map.json",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(old))
    write(folder, model.state_dict() if state is None else state, form)
    return folder


def write(folder, state, form):
    state = {key: tensor.clone() for key, tensor in state.items()}
    if form in ("zip", "old"):
        torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=form == "zip")
        return
    if form == "safetensors":
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    stem, end, write_part = ("pytorch_model", "bin", torch.save)
    if form == "sharded safetensors":
        stem, end, write_part = ("model", "safetensors", save_file)
    keys, places = list(state), {}
    for i in range(3):
        part, name = {key: state[key] for key in keys[i::3]}, f"{stem}-{i + 1:05d}-of-00003.{end}"
        write_part(part, folder / name)
        places |= dict.fromkeys(part, name)
    (folder / f"{stem}.{end}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def assert_same(folder, state):
    """The folder holds exactly these numbers, under the names that save_pretrained would give them."""
    found = load_file(folder / "model.safetensors")
    for key, tensor in found.items():
        assert tensor.dtype == state[key].dtype and torch.equal(tensor, state[key]), key
    config = AutoConfig.from_pretrained(folder)
    name = config.architectures[0]
    kind = getattr(modeling_roformer, name, None) or getattr(transformers, name)
    model, report = kind.from_pretrained(folder, output_loading_info=True, dtype="auto")
    assert not report["missing_keys"] and not report["unexpected_keys"]
    return model.eval()


# Formats.


@pytest.mark.parametrize("form", FORMS)
def test_every_format(form, tmp_path):
    model = made(THEIRS.RoFormerForMaskedLM, transformers.RoFormerConfig(**SIZES, embedding_size=8))
    folder = save(model, tmp_path / "old", form)
    report = convert(folder, tmp_path / "new", verify=True)
    ours = assert_same(tmp_path / "new", model.state_dict())
    assert type(ours) is RoFormerForMaskedLM
    assert report.extras["table of sinusoids"] == [TABLE]
    assert set(report.extras["second copy of a tied weight"]) == {DECODER, DECODER.replace("weight", "bias")}
    assert report.family == "RoFormer" and report.word_level and report.verified
    mask = IDS != 0
    with torch.inference_mode():
        found, expected = (each(IDS, mask.long()).logits[mask] for each in (ours, model))
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-5)


def test_tensors_that_share_memory_and_views(tmp_path):
    """A state dict as a script saves it by hand: transposed, sliced, and tied tensors."""
    model = made(THEIRS.RoFormerForMaskedLM, transformers.RoFormerConfig(**SIZES))
    state = model.state_dict()
    state[WEIGHT] = state[WEIGHT].T.contiguous().T
    wide = torch.randn(16, 32)
    key = "roformer.encoder.layer.0.attention.self.query.weight"
    state[key] = wide[:, 8:24]
    folder = save(model, tmp_path / "old", state={})
    torch.save(state, folder / "pytorch_model.bin")
    convert(folder, tmp_path / "new", verify=True)
    assert_same(tmp_path / "new", state)


def test_a_published_archive(tmp_path):
    """The .zip of a folder, and what else repositories hold: transformers' own TensorFlow weights of the same model."""
    folder = save(made(THEIRS.RoFormerForMaskedLM, transformers.RoFormerConfig(**SIZES)), tmp_path / "old")
    (folder / "tf_model.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    shutil.make_archive(tmp_path / "old", "zip", tmp_path, "old")
    convert(tmp_path / "old.zip", tmp_path / "new", verify=True)
    convert(folder, tmp_path / "newer", verify=True)


# Heads.

LABELS = {0: "离婚", 1: "借贷", 2: "租赁"}
HEADS = [
    ("RoFormerModel", {}),
    ("RoFormerForCausalLM", {"is_decoder": True}),
    ("RoFormerForCausalLM", {"is_decoder": True, "add_cross_attention": True}),
    ("RoFormerForSequenceClassification", {"id2label": LABELS, "label2id": {v: k for k, v in LABELS.items()}}),
    ("RoFormerForTripletMatching", {}),
    ("RoFormerForTokenClassification", {"num_labels": 5}),
    ("RoFormerForQuestionAnswering", {}),
    ("RoFormerForMultipleChoice", {"summary_use_proj": True}),
    ("BertForMaskedLM", {}),
    ("BertForPreTraining", {}),
    ("BertModel", {}),
    ("BertForSequenceClassification", {"num_labels": 3}),
    ("BertForTokenClassification", {"num_labels": 3}),
    ("BertLMHeadModel", {"is_decoder": True}),
    ("BertModel", {"is_decoder": True}),
    ("BertForPreTraining", {"is_decoder": True}),
    ("BertForSequenceClassification", {"is_decoder": True}),
    ("NezhaForMaskedLM", {}),
    ("NezhaForPreTraining", {}),
    ("NezhaForSequenceClassification", {"num_labels": 3}),
    ("NezhaModel", {}),
]


@pytest.mark.parametrize(("architecture", "fields"), HEADS)
def test_heads_are_kept(architecture, fields, tmp_path):
    kind = getattr(THEIRS, architecture, None) or getattr(transformers, architecture, None)
    kind = kind or getattr(modeling_roformer, architecture)
    model = made(kind, kind.config_class(**SIZES, **fields))
    folder = save(model, tmp_path / "old", "old")
    report = convert(folder, tmp_path / "new", verify=True)
    ours = assert_same(tmp_path / "new", model.state_dict())
    assert type(ours).__name__ == architecture
    assert report.architecture == architecture
    assert all(getattr(ours.config, name) == value for name, value in fields.items())
    expected = {key for key in model.state_dict() if not key.endswith(("embed_positions.weight", "position_ids"))}
    assert set(ours.state_dict()) == expected


def test_a_causal_bert_whose_class_is_not_named(tmp_path):
    model = made(transformers.BertLMHeadModel, BertConfig(**SIZES, is_decoder=True))
    convert(save(model, tmp_path / "old", architectures="missing"), tmp_path / "new", verify=True)
    ours = assert_same(tmp_path / "new", model.state_dict())
    assert type(ours).__name__ == "BertLMHeadModel" and ours.config.is_decoder


@pytest.mark.parametrize(
    ("tied", "missing"), [(False, DECODER.replace("weight", "bias")), (True, "cls.predictions.bias")]
)
def test_one_bias_under_two_names(tied, missing, tmp_path):
    """transformers 4 saved one of them; an untied decoder stays one."""
    model = made(BertForMaskedLM, BertConfig(**SIZES, tie_word_embeddings=tied))
    expected = model.state_dict()
    expected[DECODER.replace("weight", "bias")] = expected["cls.predictions.bias"]
    state = {key: tensor for key, tensor in expected.items() if key != missing}
    convert(save(model, tmp_path / "old", state=state), tmp_path / "new", verify=True)
    assert_same(tmp_path / "new", expected)


def test_old_names_buffers_and_heads_that_nobody_uses(tmp_path):
    """gamma and beta, position_ids, a next-sentence head and a pooler in a file that is to be a BertForMaskedLM."""
    model = made(transformers.BertForPreTraining, BertConfig(**SIZES))
    state = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for key, tensor in model.state_dict().items()
    }
    state["bert.embeddings.position_ids"] = torch.arange(64)[None]
    folder = save(model, tmp_path / "old", "old", state, architectures=["BertForMaskedLM"])
    report = convert(folder, tmp_path / "new", verify=True)
    assert report.extras["buffer"] == ["bert.embeddings.position_ids"]
    assert len(report.extras["next-sentence head"]) == len(report.extras["pooler"]) == 2
    assert_same(tmp_path / "new", model.state_dict())


@pytest.mark.parametrize("how", ["added", "missing"])
def test_the_body_is_found_under_either_name(how, tmp_path):
    """A body saved under the head's names, and the other way round, as transformers reads them too."""
    config = transformers.RoFormerConfig(**SIZES)
    model = made(THEIRS.RoFormerModel if how == "added" else THEIRS.RoFormerForMaskedLM, config)
    state = {
        f"roformer.{key}" if how == "added" else key.removeprefix("roformer."): tensor
        for key, tensor in model.state_dict().items()
    }
    convert(save(model, tmp_path / "old", state=state), tmp_path / "new", verify=True)
    assert_same(tmp_path / "new", model.state_dict())


@pytest.mark.parametrize("form", ["zip", "sharded safetensors"])
@pytest.mark.parametrize(
    "wrap",
    [
        torch.nn.DataParallel,
        lambda model: torch.nn.ModuleDict({"model": model}),  # as an attribute of Lightning's module
        lambda model: torch.nn.DataParallel(torch.nn.ModuleDict({"model": model})),
        lambda model: torch.nn.ModuleDict({"_orig_mod": model}),  # as torch.compile, which takes seconds to import
    ],
)
def test_wrapped_models_are_seen_through(wrap, form, tmp_path):
    model = made(RoFormerForMaskedLM, RoFormerConfig(**SIZES))
    state = wrap(model).state_dict()
    assert not state.keys() & model.state_dict().keys()
    folder = save(model, tmp_path / "old", form, state)
    convert(folder, tmp_path / "new", verify=True)
    assert_same(tmp_path / "new", model.state_dict())
    assert info(folder).parameters == info(tmp_path / "new").parameters


@pytest.mark.parametrize("form", ["zip", "old"])
@pytest.mark.parametrize(("name", "wrap"), [("state_dict", "model."), ("model_state_dict", ""), ("model", "module.")])
def test_a_state_dict_beside_the_state_of_training(name, wrap, form, tmp_path):
    """Lightning and people's scripts save such files."""
    model = made(THEIRS.RoFormerForMaskedLM, transformers.RoFormerConfig(**SIZES))
    folder = save(model, tmp_path / "old")
    state = {wrap + key: tensor for key, tensor in model.state_dict().items()}
    content = {"epoch": 3, "best": torch.tensor(0.5), "optimizer": {"state": {0: torch.ones(2)}}, "ema": state}
    torch.save(content | {name: state}, folder / BIN, _use_new_zipfile_serialization=form == "zip")
    report = convert(folder, tmp_path / "new", verify=True)
    assert_same(tmp_path / "new", model.state_dict())
    assert_states(report.rows, "best, ema, epoch, optimizer")
    assert info(folder).parameters == report.parameters
    torch.save({"model": state, "state_dict": state}, folder / BIN)
    with refused(CheckpointError, BIN, "state dict"):
        convert(folder, tmp_path / "two")


@pytest.mark.parametrize("found", ["RoFormerForSequenceClassification", "RoFormerForTokenClassification"])
def test_a_classifier_beside_the_configuration_of_its_base_model(found, tmp_path):
    """And the other way round: both errors say what to correct."""
    model = made(getattr(modeling_roformer, found), RoFormerConfig(**SIZES))
    folder = save(model, tmp_path / "old", architectures=["RoFormerForMaskedLM"])
    facts = ["RoFormerForMaskedLM", "architectures", "config.json"]
    with refused(CheckpointError, folder / "pytorch_model.bin", "classifier", *facts):
        convert(folder, tmp_path / "new")
    folder = save(made(RoFormerForMaskedLM, model.config), tmp_path / "other", architectures=[found])
    with refused(CheckpointError, folder / "pytorch_model.bin", found, *facts[1:]):
        convert(folder, tmp_path / "new")
    save(model, tmp_path / "old", architectures=[found])
    convert(tmp_path / "old", tmp_path / "new", verify=True)


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("RoFormerForMaskedLM", {}),
        ("RoFormerForCausalLM", {"is_decoder": True}),
        ("BertForMaskedLM", {}),
        ("RoFormerModel", {}),
    ],
)
def test_a_configuration_that_names_no_class_and_no_type(architecture, fields, tmp_path):
    kind = getattr(THEIRS, architecture, None) or getattr(transformers, architecture)
    model = made(kind, kind.config_class(**SIZES, **fields))
    bare = architecture.endswith("Model")
    folder = save(model, tmp_path / "old", architectures="missing", **({} if bare else {"model_type": "missing"}))
    convert(folder, tmp_path / "new", verify=True)
    assert AutoConfig.from_pretrained(tmp_path / "new").architectures == [architecture]


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_language_model_without_weights_of_its_own_is_seen_by_its_prefix(use_bias, tmp_path):
    model = made(RoFormerForMaskedLM, RoFormerConfig(**SIZES, norm_type="rms_norm", use_bias=use_bias))
    folder = save(model, tmp_path / "old", architectures="missing")
    convert(folder, tmp_path / "new", verify=True)
    assert type(assert_same(tmp_path / "new", model.state_dict())) is RoFormerForMaskedLM


def test_generation_settings_come_along(tmp_path):
    model = made(THEIRS.RoFormerForCausalLM, transformers.RoFormerConfig(**SIZES, is_decoder=True, eos_token_id=3))
    folder = save(model, tmp_path / "old")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 3, "max_new_tokens": 7}))
    convert(folder, tmp_path / "new", verify=True)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "new").generation_config.max_new_tokens == 7


# Checkpoints that the roformer package 0.4.3 and transformers 4 saved themselves, with their own answers.

RELEASED = {
    "v1": "RoFormer",
    "v2": "RoFormer-V2",
    "sim": "RoFormer-Sim",
    "classification": "RoFormer",
    "transformers_roformer": "RoFormer",
    "wobert": "WoBERT",
    "nezha": "WoNEZHA",
}


@pytest.mark.parametrize("name", RELEASED)
def test_answers_of_the_packages_that_saved_them(name, tmp_path):
    folder = REPOSITORY / "tests" / "fixtures" / "pytorch" / name
    report = convert(folder, tmp_path / "new", verify=True)
    assert report.family == RELEASED[name]
    saved = torch.load(folder / "pytorch_model.bin", weights_only=True)
    model = assert_same(tmp_path / "new", saved)
    recorded = {key: torch.from_numpy(value) for key, value in np.load(folder / "reference.npz").items()}
    ids = recorded["input_ids"]
    with torch.inference_mode():
        outputs = model(ids, attention_mask=(ids != 0).long(), token_type_ids=recorded["token_type_ids"])
    here = ids != 0 if outputs.logits.ndim == 3 else slice(None)
    assert recorded["logits"][here].std() > 0.1
    if name == "wobert":
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
        assert isinstance(tokenizer, RoFormerTokenizer) and tokenizer.tokenize("听见明月") == ["听见", "明月"]
        assert tokenizer.model_max_length == model.config.max_position_embeddings
    if name == "v2":
        assert (model.config.norm_type, model.config.use_bias) == ("rms_norm", False)
        assert json.loads((tmp_path / "new" / "config.json").read_text())["model_type"] == "roformer_v2"
    torch.testing.assert_close(outputs.logits[here], recorded["logits"][here], rtol=0, atol=2e-5)
    if name == "sim":
        torch.testing.assert_close(outputs.pooler_output, recorded["pooled"], rtol=0, atol=2e-5)


def save_sim(folder, activation="linear", **fields):
    """A RoFormer-Sim converted by convert_roformer_original_tf_checkpoint_to_pytorch.py of 0.4.3, in the old format."""
    config = RoFormerConfig(
        **SIZES, is_decoder=True, prefix_lm=True, add_pooling_layer=True, pooler_activation="linear", eos_token_id=3
    )
    model = made(RoFormerForCausalLM, config)
    lost = dict.fromkeys(("prefix_lm", "add_pooling_layer"), "missing")
    fields = {"model_type": "roformer", "pooler_activation": activation, **lost, **fields}
    return model, save(model, folder, "old", **fields)


@pytest.mark.parametrize("fields", [{}, {"is_decoder": False, "architectures": ["RoFormerForMaskedLM"]}])
def test_roformer_sim(fields, tmp_path):
    """0.4.3 has no field for a prompt that is read in both directions, and reads it so."""
    model, folder = save_sim(tmp_path / "old", **fields)
    report = convert(folder, tmp_path / "new", verify=True)
    assert report.family == info(folder).family == "RoFormer-Sim"
    ours = assert_same(tmp_path / "new", model.state_dict())
    assert type(ours) is RoFormerForCausalLM and ours.config.prefix_lm and ours.config.is_decoder
    with torch.inference_mode():
        expected, found = model(IDS, (IDS != 0).long()), ours(IDS, (IDS != 0).long())
        assert torch.equal(found.pooler_output, expected.pooler_output) and torch.equal(found.logits, expected.logits)
        assert torch.equal(
            AutoModel.from_pretrained(tmp_path / "new")(IDS, (IDS != 0).long()).pooler_output, expected.pooler_output
        )


def test_roformer_sim_without_its_language_model(tmp_path):
    """Saved by AutoModel: sentence-transformers finds the pooler with any key prefix."""
    _, folder = save_sim(tmp_path / "old")
    convert(folder, tmp_path / "sim")
    AutoModel.from_pretrained(tmp_path / "sim").save_pretrained(tmp_path / "encoder")
    shutil.copy(WORDS, tmp_path / "encoder")
    report = convert(tmp_path / "encoder", tmp_path / "new", verify=True)
    assert report.family == "RoFormer-Sim" and report.architecture == "RoFormerModel"
    pooler = load_file(tmp_path / "new" / "2_Dense" / "model.safetensors")
    encoder = load_file(tmp_path / "encoder" / "model.safetensors")
    assert torch.equal(pooler["linear.weight"], encoder["pooler.dense.weight"])


@pytest.mark.parametrize("architecture", ["RoFormerForCausalLM", "RoFormerForMaskedLM"])
@pytest.mark.parametrize("activation", ["missing", None])
def test_a_pooler_whose_activation_nobody_names(architecture, activation, tmp_path):
    """It may be RoFormer-Sim's, with UniLM's mask, whatever class the configuration names."""
    model, folder = save_sim(tmp_path / "old", activation=activation, architectures=[architecture])
    with refused(CheckpointError, folder, "config.json", "--family sim", "--family roformer", "pooler_activation"):
        convert(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    convert(folder, tmp_path / "sim", family="sim", verify=True)
    assert_same(tmp_path / "sim", model.state_dict())
    report = convert(folder, tmp_path / "plain", family="roformer", verify=True)
    assert len(report.extras["pooler"]) == 2
    assert type(AutoModelForMaskedLM.from_pretrained(tmp_path / "plain")) is RoFormerForMaskedLM
    config = AutoConfig.from_pretrained(tmp_path / "plain")
    assert not config.is_decoder and not config.add_pooling_layer and config.architectures == ["RoFormerForMaskedLM"]


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_a_pooler_without_a_prefix_is_no_roformer_sim(activation, tmp_path):
    """Both commands by the fields that this package always writes, and by those of 0.4.3."""
    config = RoFormerConfig(**SIZES, add_pooling_layer=True, pooler_activation=activation)
    lost = {"add_pooling_layer": "missing"} if activation == "tanh" else {}
    folder = save(made(RoFormerForMaskedLM, config), tmp_path / "old", **lost)
    report = convert(folder, tmp_path / "new", verify=True)
    assert report.family == info(tmp_path / "new").family == info(folder).family == "RoFormer"
    config = AutoConfig.from_pretrained(tmp_path / "new")
    assert (config.pooler_activation, config.add_pooling_layer, config.prefix_lm) == (activation, True, False)


@pytest.mark.parametrize("pooler", [{}, {"add_pooling_layer": True, "pooler_activation": "tanh"}])
def test_a_prefix_language_model_is_no_roformer_sim(pooler, tmp_path):
    """Fine-tuned as UniLM does it: without RoFormer-Sim's pooler there is no vector of a sentence."""
    config = RoFormerConfig(**SIZES, is_decoder=True, prefix_lm=True, eos_token_id=3, **pooler)
    folder = save(made(RoFormerForCausalLM, config), tmp_path / "old")
    report = convert(folder, tmp_path / "new", verify=True)
    card = (tmp_path / "new" / "README.md").read_text(encoding="utf-8")
    assert report.family == info(tmp_path / "new").family == info(folder).family
    assert "prefix language model" in report.family and info(folder).task == "text-generation"
    assert "pooler_output" not in card and 'pipeline("text-generation"' in card and report.family in card


# WoBERT.


@pytest.mark.parametrize("kind", [transformers.BertForSequenceClassification, transformers.BertForQuestionAnswering])
def test_a_task_head_is_no_start(kind, tmp_path):
    folder = save(made(kind, BertConfig(**SIZES)), tmp_path / "old")
    with refused(CheckpointError, folder / "pytorch_model.bin", "RoFormerModel", "AutoModel"):
        convert(folder, tmp_path / "new", as_family="roformer")
    assert not (tmp_path / "new").exists()


def save_simbert(folder, has_language_model=True):
    """A SimBERT as transformers' BERT: nothing but its pooler shows that it is one."""
    model = made(transformers.BertForPreTraining, BertConfig(**SIZES))
    state = {key: tensor for key, tensor in model.state_dict().items() if "seq_relationship" not in key}
    name = "BertForMaskedLM"
    if not has_language_model:
        state = {key: tensor for key, tensor in state.items() if key.startswith("bert.")}
        name = "BertModel"
    return model.bert, save(model, folder, state=state, architectures=[name])


@pytest.mark.parametrize("has_language_model", [True, False])
def test_simbert(has_language_model, tmp_path):
    bert, folder = save_simbert(tmp_path / "old", has_language_model)
    report = convert(folder, tmp_path / "new", family="simbert", verify=True)
    assert report.family == "SimBERT" and "pooler" not in report.extras and "RoFormer" in report.written_as
    config = AutoConfig.from_pretrained(tmp_path / "new")
    assert config.architectures == ["RoFormerForCausalLM" if has_language_model else "RoFormerModel"]
    assert (config.prefix_lm, config.pooler_activation, config.eos_token_id) == (True, "linear", 3)
    model = AutoModel.from_pretrained(tmp_path / "new").eval()
    with torch.inference_mode():
        expected, found = bert(IDS, (IDS != 0).long()), model(IDS, (IDS != 0).long())
    here = IDS != 0
    torch.testing.assert_close(found.last_hidden_state[here], expected.last_hidden_state[here], rtol=0, atol=1e-5)
    torch.testing.assert_close(found.pooler_output.tanh(), expected.pooler_output, rtol=0, atol=1e-5)
    assert (tmp_path / "new" / "2_Dense" / "model.safetensors").is_file()
    assert convert(tmp_path / "new", tmp_path / "again", verify=True).family == "SimBERT"


@pytest.mark.parametrize("kind", [transformers.BertForSequenceClassification, transformers.BertForPreTraining])
def test_the_name_of_a_simbert_does_not_change_a_class_that_is_named(kind, tmp_path):
    model = made(kind, BertConfig(**SIZES, num_labels=3))
    convert(save(model, tmp_path / "simbert-lcqmc"), tmp_path / "new", verify=True)
    assert type(assert_same(tmp_path / "new", model.state_dict())) is kind


def test_a_decoder_that_generates_nothing_keeps_the_end_of_texts(tmp_path):
    model = made(modeling_roformer.RoFormerForSequenceClassification, RoFormerConfig(**SIZES, is_decoder=True))
    folder = save(model, tmp_path / "old")
    (folder / "tokenizer_config.json").unlink()
    convert(folder, tmp_path / "new", verify=True)
    assert AutoTokenizer.from_pretrained(tmp_path / "new").add_sep_token


def test_a_bert_that_may_be_a_simbert_says_so(tmp_path):
    _, folder = save_simbert(tmp_path / "old")
    report = convert(folder, tmp_path / "new", verify=True)
    assert report.family == "WoBERT" and len(report.extras["pooler"]) == 2
    assert_states(report.rows["pooler"], "--family simbert")
    plain = save(made(BertForMaskedLM, BertConfig(**SIZES)), tmp_path / "plain")
    assert "pooler" not in convert(plain, tmp_path / "bert").rows
    with refused(CheckpointError, plain / "pytorch_model.bin", "--family simbert", "--family wobert"):
        convert(plain, tmp_path / "sim", family="simbert")


# Tokenizers.


def tokens(folder, text="明月照着THE rope"):
    return AutoTokenizer.from_pretrained(folder).tokenize(text)


@pytest.mark.parametrize(
    ("fields", "lower"),
    [
        (None, False),
        ({"tokenizer_class": "BertTokenizer"}, False),
        ({"do_lower_case": True}, True),
    ],
)
def test_a_vocabulary_with_capital_letters_is_not_lower_cased_unless_a_file_says_so(fields, lower, tmp_path):
    folder = save(made(BertForMaskedLM, BertConfig(**SIZES)), tmp_path / "old")
    (folder / "vocab.txt").write_text("\n".join(ENTRIES).replace("\nz\n", "\nA\n"), encoding="utf-8", newline="\n")
    (folder / "tokenizer_config.json").unlink()
    if fields is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    convert(folder, tmp_path / "new")
    expected = transformers.BertTokenizer(str(folder / "vocab.txt"), do_lower_case=lower)
    assert tokens(tmp_path / "new", "A 明 a") == expected.tokenize("A 明 a") == ["a" if lower else "A", "明", "a"]


def test_a_tokenizer_of_today_and_its_added_tokens(tmp_path):
    """Only tokenizer.json, which is all that transformers 5 saves, with tokens added to it."""
    folder = save(made(BertForMaskedLM, BertConfig(**{**SIZES, "vocab_size": len(ENTRIES) + 2})), tmp_path / "old")
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / name).unlink()
    theirs = transformers.BertTokenizer(vocab={entry: i for i, entry in enumerate(ENTRIES)}, do_lower_case=False)
    theirs.add_tokens(["[新词]", "[新人]"])
    theirs.save_pretrained(folder)
    assert not (folder / "vocab.txt").exists()
    convert(folder, tmp_path / "new", verify=True)
    assert "[新人]" in tokens(tmp_path / "new", "明月[新人]") and "[UNK]" in tokens(tmp_path / "new", "THE")
    ids = AutoTokenizer.from_pretrained(tmp_path / "new").convert_tokens_to_ids(["[新词]", "[新人]"])
    assert ids == [len(ENTRIES), len(ENTRIES) + 1]


def test_tokens_that_only_another_file_adds(tmp_path):
    """vocab.txt stays without them, and is not taken for the whole tokenizer."""
    size = len(ENTRIES) + 1
    folder = save(made(BertForMaskedLM, BertConfig(**{**SIZES, "vocab_size": size})), tmp_path / "old")
    (folder / "added_tokens.json").write_text(json.dumps({"[新词]": size - 1}))
    convert(folder, tmp_path / "new", verify=True)
    assert AutoTokenizer.from_pretrained(tmp_path / "new").convert_tokens_to_ids("[新词]") == size - 1


@pytest.mark.parametrize("tokens", [["[新词]", "[新人]"], ["海"], ["海", "[新词]", "[新人]"]])
@pytest.mark.parametrize("special", [False, True])
def test_added_tokens_are_found_in_texts_as_before(tokens, special, tmp_path):
    """Also tokens of the vocabulary: scripts make special tokens of [unused1]."""
    folder = save(made(BertForMaskedLM, BertConfig(**{**SIZES, "vocab_size": len(ENTRIES) + 2})), tmp_path / "old")
    tokenizer = RoFormerTokenizer(
        WORDS,
        padding_side="left",
        truncation_side="left",
        model_max_length=48,
        user_dict=["海上升"],
        do_lower_case=False,
    )
    tokenizer.add_tokens(tokens, special_tokens=special)
    if special:
        tokenizer.extra_special_tokens = tokens
    tokenizer.save_pretrained(folder)
    convert(folder, tmp_path / "new", verify=True)
    new = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert new.all_special_tokens == tokenizer.all_special_tokens
    text = "明月[新词]照着THE[新人]海上升[MASK]"
    assert new(text).input_ids == tokenizer(text).input_ids
    assert new.decode(new(text).input_ids, skip_special_tokens=True) == tokenizer.decode(
        tokenizer(text).input_ids, skip_special_tokens=True
    )
    kept = (new.padding_side, new.truncation_side, new.model_max_length, new.user_dict)
    assert kept == ("left", "left", 48, ["海上升"])
    assert "someone" not in (tmp_path / "new" / "tokenizer_config.json").read_text()


def test_weights_that_are_named_have_the_configuration_of_their_own_kind(tmp_path):
    """A folder of both frameworks: bert_config.json says nothing of norms, nor of classes."""
    config = RoFormerConfig(**SIZES, norm_type="rms_norm", use_bias=False)
    folder = save(made(RoFormerForMaskedLM, config), tmp_path / "old")
    shutil.copy(WORDS.parent / "bert_config.json", folder)
    for file in WORDS.parent.glob("bert_model.ckpt*"):
        shutil.copy(file, folder)
    with refused(CheckpointError, folder, "--checkpoint", "bert_model.ckpt", "pytorch_model.bin"):
        convert(folder, tmp_path / "new")
    assert convert(folder, tmp_path / "new", checkpoint="pytorch_model.bin").family == "RoFormer-V2"
    (folder / "pytorch_model.bin").rename(folder / "best.pt")
    assert convert(folder, tmp_path / "newer", checkpoint="best.pt").family == "RoFormer-V2"
    assert convert(folder, tmp_path / "newest", checkpoint="bert_model.ckpt").family == "RoFormer"


def test_nothing_points_to_what_is_not_there(tmp_path):
    """A former tokenizer's class, code that lay beside the checkpoint, and its owner's disk."""
    old = {
        "tokenizer_class": "WoBertTokenizer",
        "auto_map": {"AutoModel": "code.Model"},
        "_name_or_path": "/home/someone",
    }
    folder = save(made(BertForMaskedLM, BertConfig(**SIZES)), tmp_path / "old")
    edit_config(**old)(folder)
    report = convert(folder, tmp_path / "new", verify=True)
    assert set(report.ignored_settings) == set(old)
    assert not set(json.loads((tmp_path / "new" / "config.json").read_text())) & set(old)


# Families.


@pytest.mark.parametrize(
    ("architecture", "fields", "family"),
    [
        ("RoFormerForMaskedLM", {}, "roformer"),
        ("RoFormerForCausalLM", {"is_decoder": True}, "gpt"),
        ("BertForMaskedLM", {}, "wobert"),
        ("NezhaForMaskedLM", {}, "wonezha"),
    ],
)
def test_the_family_must_agree(architecture, fields, family, tmp_path):
    kind = getattr(modeling_roformer, architecture, None) or getattr(transformers, architecture)
    folder = save(made(kind, kind.config_class(**SIZES, **fields)), tmp_path / "old")
    convert(folder, tmp_path / "new", family=family)
    for other in {"roformer", "gpt", "sim", "v2", "wobert", "wonezha"} - {family}:
        with refused(CheckpointError, f"(--family {other})", f"use --family {family}"):
            convert(folder, tmp_path / "other", family=other)
    with refused(CheckpointError, "'bert'", "wobert"):
        convert(folder, tmp_path / "other", family="bert")
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]
    if family == "gpt":
        assert not AutoTokenizer.from_pretrained(tmp_path / "new").add_sep_token


def save_gpt(folder, **fields):
    """A RoFormer-GPT of PyTorch; the configuration has neither ends of texts nor, unless given, the mask."""
    model = made(RoFormerForCausalLM, RoFormerConfig(**SIZES, is_decoder=True))
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), "missing")
    return model, save(model, folder, **({"is_decoder": "missing"} | ends | fields))


def answers_of(folder):
    """The mask, the last token and whether prompts end with [SEP], as the converted folder has them."""
    config, tokenizer = AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return config.is_decoder, config.bos_token_id, config.eos_token_id, tokenizer("明月").input_ids[-1] == 3


BARE = dict.fromkeys(("model_type", "architectures"), "missing")


@pytest.mark.parametrize(
    ("fields", "family"),
    [({"is_decoder": True}, "auto"), ({}, "gpt"), (BARE, "gpt"), (BARE | {"application": "lm"}, "gpt")],
)
def test_a_gpt_has_a_causal_mask_and_ends_as_from_tensorflow(fields, family, tmp_path):
    model, folder = save_gpt(tmp_path / "old", **fields)
    convert(folder, tmp_path / "new", family=family, verify=True)
    assert answers_of(tmp_path / "new") == (True, 2, 3, False)
    ours = assert_same(tmp_path / "new", model.state_dict())
    later = IDS.clone()
    later[:, -1] = 9
    with torch.inference_mode():
        assert torch.equal(ours(IDS).logits[:, :-1], ours(later).logits[:, :-1])
    assert ours.generation_config.eos_token_id == 3


def test_what_a_gpts_files_state_wins_over_its_family(tmp_path):
    _, folder = save_gpt(tmp_path / "old", is_decoder=True, bos_token_id=7, eos_token_id=9)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer | {"add_sep_token": True}))
    for family in ("auto", "gpt"):
        convert(folder, tmp_path / family, family=family)
        assert answers_of(tmp_path / family) == (True, 7, 9, True)


@pytest.mark.parametrize("fields", [{"is_decoder": False}, {"is_decoder": True, "prefix_lm": True}])
def test_a_gpt_that_its_configuration_denies(fields, tmp_path):
    _, folder = save_gpt(tmp_path / "old", **fields)
    with refused(CheckpointError, "--family gpt", "config.json", list(fields)[-1]):
        convert(folder, tmp_path / "new", family="gpt")
    assert not (tmp_path / "new").exists()


def test_a_roformer_sim_stops_as_from_tensorflow(tmp_path):
    _, folder = save_sim(tmp_path / "old", activation=None, eos_token_id="missing")
    convert(folder, tmp_path / "new", family="sim")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "new").generation_config.eos_token_id == 3
    _, folder = save_sim(tmp_path / "stated", activation=None, eos_token_id=9)
    convert(folder, tmp_path / "other", family="sim")
    assert AutoConfig.from_pretrained(tmp_path / "other").eos_token_id == 9


def test_a_nezha_has_no_ends_as_from_tensorflow(tmp_path):
    kind = modeling_roformer.NezhaForMaskedLM
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), "missing")
    convert(save(made(kind, kind.config_class(**SIZES)), tmp_path / "old", **ends), tmp_path / "new")
    config = AutoConfig.from_pretrained(tmp_path / "new")
    assert (config.bos_token_id, config.eos_token_id) == (None, None)


def test_prefix_lm_alone_is_unilms_mask_in_a_roformer_only(tmp_path):
    for kind, config, right, wrong in (
        (RoFormerForMaskedLM, RoFormerConfig(**SIZES, prefix_lm=True), "unilm", "encoder"),
        (BertForMaskedLM, BertConfig(**SIZES, prefix_lm=True), "encoder", "unilm"),
    ):
        folder = save(made(kind, config), tmp_path / "old", application=right)
        convert(folder, tmp_path / "new", force=True)
        assert AutoConfig.from_pretrained(tmp_path / "new").is_decoder is False
        edit_config(application=wrong)(folder)
        with refused(CheckpointError, "config.json", wrong):
            convert(folder, tmp_path / "other")


@pytest.mark.parametrize(
    ("fields", "application", "is_right"),
    [
        ({}, "lm", False),
        ({}, "unilm", False),
        ({}, "encoder", True),
        ({"is_decoder": True}, "lm", True),
        ({"is_decoder": True}, "encoder", False),
    ],
)
def test_bert4keras_field_for_the_mask_must_agree_with_transformers(fields, application, is_right, tmp_path):
    model = made(transformers.BertLMHeadModel if fields else BertForMaskedLM, BertConfig(**SIZES, **fields))
    folder = save(model, tmp_path / "old", application=application)
    assert bool(info(folder).notes) != is_right
    if is_right:
        convert(folder, tmp_path / "new")
        return
    with refused(CheckpointError, folder, "config.json", f'"application": "{application}"', "is_decoder"):
        convert(folder, tmp_path / "new")


# Bad input.


def state_of(folder):
    return torch.load(folder / "pytorch_model.bin", weights_only=True)


def edit(change):
    def trouble(folder):
        state = state_of(folder)
        change(state)
        torch.save(state, folder / "pytorch_model.bin")

    return trouble


def edit_config(name="config.json", **fields):
    def trouble(folder):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | fields))

    return trouble


def write_text(name, text):
    return lambda folder: (folder / name).write_text(text)


def two_tokenizers(folder):
    """vocab.txt with two lines exchanged, beside the tokenizer.json that was made of the right one."""
    RoFormerTokenizer(WORDS).save_pretrained(folder)
    at = ENTRIES.index("海")
    exchanged = [*ENTRIES[:at], ENTRIES[at + 1], ENTRIES[at], *ENTRIES[at + 2 :]]
    (folder / "vocab.txt").write_text("".join(f"{entry}\n" for entry in exchanged), encoding="utf-8", newline="\n")


def flip_a_byte(folder):
    """In the numbers of a tensor: torch.load would not notice."""
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path) as archive:
        record = max(archive.infolist(), key=lambda record: record.file_size)
    at = record.header_offset + 30 + len(record.filename) + record.file_size // 2 + 64
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def truncate(folder):
    path = folder / "pytorch_model.bin"
    os.truncate(path, path.stat().st_size // 2)


class Code:
    def __reduce__(self):
        return (os.system, ("touch it_ran",))


def saved_as(content, **options):
    return lambda folder: torch.save(content, folder / "pytorch_model.bin", **options)


def compressed(folder):
    """An archive that unpacks to more than it is."""
    path, packed = folder / "pytorch_model.bin", io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for record in old.infolist():
            new.writestr(record.filename, old.read(record))
    path.write_bytes(packed.getvalue())


BIN = "pytorch_model.bin"
TROUBLES = {
    "truncated": (truncate, [BIN, "damaged"]),
    "a flipped byte": (flip_a_byte, ["pytorch_model.bin", "damaged", "CRC"]),
    "empty": (write_text(BIN, ""), [BIN, "damaged"]),
    "text": (write_text(BIN, "<html>404</html>"), [BIN, "damaged"]),
    "code": (edit(lambda s: s.update(code=Code())), [BIN, "code"]),
    "old with code": (saved_as({"code": Code()}, _use_new_zipfile_serialization=False), [BIN, "code"]),
    "a bare pickle with code": (lambda f: (f / BIN).write_bytes(pickle.dumps({"code": Code()})), [BIN, "code"]),
    "compressed": (compressed, [BIN, "torch.save"]),
    "a list": (saved_as([torch.zeros(2)]), [BIN, "state dict"]),
    "a training state": (edit(lambda s: s.update(model=copy.copy(s))), [BIN, "state dict"]),
    "no tensors": (saved_as({}), [BIN, "no tensors"]),
    "a weight is missing": (edit(lambda s: s.pop(WEIGHT)), ["no tensor", WEIGHT]),
    "no head": (
        edit(lambda s: [s.pop(k) for k in list(s) if k.startswith("cls")]),
        ["cls.predictions", "architectures"],
    ),
    "a weight too many": (edit(lambda s: s.update(adapter=torch.zeros(2))), ["RoFormerForMaskedLM", "adapter"]),
    "a layer too many": (
        edit(lambda s: s.update({WEIGHT.replace("1", "2"): s[WEIGHT]})),
        ["roformer.encoder.layer.2.output.dense.weight", "config.json"],
    ),
    "misshapen": (edit(lambda s: s.update({WEIGHT: torch.zeros(16, 25)})), [WEIGHT, "(16, 25)", "(16, 24)"]),
    "integers": (edit(lambda s: s.update({WEIGHT: torch.zeros(16, 24, dtype=torch.int64)})), [WEIGHT, "int64"]),
    "8 bits": (edit(lambda s: s.update({WEIGHT: torch.zeros(16, 24, dtype=torch.int8)})), [WEIGHT, "int8"]),
    "sparse": (edit(lambda s: s.update({WEIGHT: torch.zeros(16, 24).to_sparse()})), ["pytorch_model.bin"]),
    "NaN": (edit(lambda s: s[WEIGHT].fill_(float("nan"))), [WEIGHT, "finite"]),
    "infinite": (edit(lambda s: s[WEIGHT][3, 4].fill_(-float("inf"))), [WEIGHT, "finite"]),
    "one weight twice": (
        edit(lambda s: s.update({WEIGHT.removeprefix("roformer."): s[WEIGHT] + 1})),
        ["two tensors", WEIGHT],
    ),
    "a copy that is none": (edit(lambda s: s.update({DECODER: s[DECODER] + 1})), [DECODER, "tie_word_embeddings"]),
    "no configuration": (lambda f: (f / "config.json").unlink(), ["config.json"]),
    "broken configuration": (write_text("config.json", "{"), ["config.json", "JSON"]),
    "no object": (write_text("config.json", "[]"), ["config.json"]),
    "another model": (edit_config(model_type="gpt2"), ["config.json", "model_type", "'gpt2'"]),
    "another mask": (edit_config(application="lm"), ["config.json", '"application": "lm"', "is_decoder"]),
    "an unknown class": (edit_config(architectures=["RoFormerForEverything"]), ["RoFormerForEverything"]),
    "a class of another model": (edit_config(architectures=["BertForMaskedLM"]), ["RoFormer", "BERT"]),
    "another width": (edit_config(hidden_size=20), ["config.json", "20"]),
    "text for a number": (edit_config(hidden_size="many"), ["config.json", "hidden_size"]),
    "text for a length": (edit_config(max_position_embeddings="many"), ["config.json", "max_position_embeddings"]),
    "an unknown activation": (edit_config(hidden_act="magic"), ["magic"]),
    "a small vocabulary": (edit_config(vocab_size=7), ["vocab.txt", "154 entries", "config.json", 7, "vocab_size"]),
    "a broken tokenizer": (lambda f: (f / "tokenizer_config.json").write_text("{"), ["tokenizer_config.json", "JSON"]),
    "a list for a tokenizer": (write_text("tokenizer_config.json", "[]"), ["tokenizer_config.json", "object"]),
    "a tokenizer of another kind": (
        edit_config("tokenizer_config.json", tokenizer_class="BertJapaneseTokenizer"),
        ["BertJapaneseTokenizer"],
    ),
    "no Chinese characters": (
        edit_config("tokenizer_config.json", tokenizer_class="BertTokenizer", tokenize_chinese_chars=False),
        ["tokenizer_config.json", "tokenize_chinese_chars", False],
    ),
    "a number for a token": (edit_config("tokenizer_config.json", cls_token=3), ["tokenizer", "cls_token"]),
    "two tokenizers": (two_tokenizers, ["old", "'海'", 97, "vocab.txt", "tokenizer.json"]),
    "no vocabulary": (lambda f: (f / "vocab.txt").unlink(), ["vocab.txt", "missing"]),
    "an empty vocabulary": (lambda f: (f / "vocab.txt").write_text(""), ["vocab"]),
}


def assert_refused(run, tmp_path, *facts):
    code, out, err = run("convert", tmp_path / "old", tmp_path / "new")
    assert code == 1 and out == "" and err.count("\n") == 1 and "Traceback" not in err
    assert_states(err, *facts)
    assert os.listdir(tmp_path) == ["old"]


@pytest.fixture
def folder(tmp_path):
    return save(made(THEIRS.RoFormerForMaskedLM, transformers.RoFormerConfig(**SIZES)), tmp_path / "old")


@pytest.mark.parametrize("trouble", TROUBLES)
def test_bad_input_gets_one_sentence_and_leaves_nothing(run, folder, trouble, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change, facts = TROUBLES[trouble]
    change(folder)
    assert_refused(run, tmp_path, *facts)


@pytest.mark.parametrize("form", ["sharded bin", "sharded safetensors"])
def test_shards_that_do_not_belong_together(run, form, tmp_path):
    folder = save(made(THEIRS.RoFormerForMaskedLM, transformers.RoFormerConfig(**SIZES)), tmp_path / "old", form)
    index = next(folder.glob("*.index.json"))
    shard = sorted(folder.glob("*00002-of-00003*"))[0]
    whole = shard.read_bytes()
    shard.unlink()
    assert_refused(run, tmp_path, index.name, shard.name, "missing")
    shard.write_bytes(whole[: len(whole) // 2])
    assert_refused(run, tmp_path, shard.name, "damaged")
    shutil.copy(sorted(folder.glob("*00001-of-00003*"))[0], shard)
    assert_refused(run, tmp_path, index.name, "several files")
    index.write_text("{}")
    assert_refused(run, tmp_path, index.name, "weight_map")
