"""`roformer export-tf`: TensorFlow's own sums, bert4keras' own answers, and back again, bit for bit."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import torch
import transformers
from helpers.legacy_checkpoints import copy_form, edit_config
from helpers.messages import assert_states, refused
from helpers.pages import blocks
from helpers.paths import REPOSITORY
from helpers.small_models import small_config
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken
from transformers import AutoConfig, AutoTokenizer

import modeling_roformer
from modeling_roformer import RoFormerTokenizer
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.formats.tensor_bundle import TensorBundle
from modeling_roformer.conversion.inspection.info import info
from modeling_roformer.conversion.tf_exporter import export_tf

FIXTURES = REPOSITORY / "tests" / "fixtures"
LEGACY = FIXTURES / "legacy"
BERT4KERAS = os.environ.get("ROFORMER_BERT4KERAS_PYTHON")
# Fixture -> what bert4keras is told, besides where the files are.
FAMILIES = {
    "word": "model='roformer', with_mlm='linear'",
    "factorized": "model='roformer', with_mlm='linear'",
    "v2": "model='roformer_v2', with_mlm='linear'",
    "gpt": "model='roformer', application='lm'",
    "sim": "model='roformer', application='unilm', with_pool='linear', with_mlm='linear'",
    "wobert": "model='bert', with_mlm='linear'",
    "wobert_bert_order": "model='bert', with_mlm='linear'",
    "wonezha": "model='nezha', with_mlm='linear'",
}
DTYPES = ["bfloat16", "float16", "float64"]


def entries_of(vocab):
    return vocab.read_bytes().decode().removesuffix("\n").split("\n")


def saved(folder, architecture, name="word", seed=0, dtype=torch.float32, **fields):
    """A folder of a small model with random weights of any class, over a fixture's vocabulary."""
    vocab = LEGACY / name / "vocab.txt"
    kind = getattr(modeling_roformer, architecture, None) or getattr(transformers, architecture)
    torch.manual_seed(seed)
    model = kind(small_config(kind.config_class, **{"vocab_size": len(entries_of(vocab)), **fields}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.to(dtype).save_pretrained(folder)
    RoFormerTokenizer(vocab).save_pretrained(folder)
    return model.eval()


def same_tensors(folder, other):
    ours, theirs = load_file(folder / "model.safetensors"), load_file(other / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert ours[key].dtype == theirs[key].dtype and torch.equal(ours[key], theirs[key]), key


def same_config(folder, other):
    ours, theirs = (json.loads((place / "config.json").read_text()) for place in (folder, other))
    assert ours == theirs


# The form.


def there_and_back(folder, dtype="float32", **options):
    """Export the model in a folder, convert it again, and compare; return both reports."""
    exported = export_tf(folder / "model", folder / "legacy")
    converted = convert(folder / "legacy", folder / "again", dtype=dtype, **options)
    same_tensors(folder / "model", folder / "again")
    same_config(folder / "model", folder / "again")
    return exported, converted


@pytest.mark.parametrize("name", [*FAMILIES, *DTYPES])
def test_the_sums_are_tensorflows_own_and_the_model_comes_back(name, tmp_path):
    """The fixture's index was written by TensorFlow, from the same numbers: name, dtype, shape and CRC-32C."""
    dtype = name if name in DTYPES else "float32"
    convert(LEGACY / name, tmp_path / "model", dtype=dtype)
    report, again = there_and_back(tmp_path, dtype, verify=True)
    theirs = TensorBundle(LEGACY / name / "bert_model.ckpt").entries
    ours = TensorBundle(tmp_path / "legacy" / "bert_model.ckpt")
    assert len(ours.entries) == report.variables > 30 or name in ("v2", "float64")
    for variable, entry in ours.entries.items():
        ours.check(variable)
        recorded = theirs[variable]
        assert (entry.dtype, entry.shape, entry.crc) == (recorded.dtype, recorded.shape, recorded.crc), variable
    arguments = FAMILIES.get(name, FAMILIES["word"])
    assert report.call == f"build_transformer_model('bert_config.json', 'bert_model.ckpt', {arguments})"
    assert not report.task and again.extras == {} and again.ignored_settings == []
    assert (tmp_path / "legacy" / "vocab.txt").read_bytes() == (LEGACY / name / "vocab.txt").read_bytes()
    text = "明月照着山路，孩子在桥头数星星。The rope"
    tokenizers = [AutoTokenizer.from_pretrained(tmp_path / place) for place in ("model", "again")]
    assert tokenizers[0](text).input_ids == tokenizers[1](text).input_ids


def test_the_original_configuration_is_what_it_was(tmp_path):
    """All that bert4keras reads of bert_config.json."""
    convert(LEGACY / "factorized", tmp_path / "model")
    export_tf(tmp_path / "model", tmp_path / "legacy")
    old, new = (
        json.loads((place / "bert_config.json").read_text()) for place in (LEGACY / "factorized", tmp_path / "legacy")
    )
    del old["directionality"]
    assert {name: new[name] for name in old} == old | {"max_position_embeddings": 1536}


HEADS = {
    "RoFormerForSequenceClassification": {
        "id2label": {0: "差", 1: "好"},
        "label2id": {"差": 0, "好": 1},
        "problem_type": "single_label_classification",
    },
    "RoFormerForTokenClassification": {"id2label": {0: "O", 1: "B", 2: "I"}, "label2id": {"O": 0, "B": 1, "I": 2}},
    "RoFormerForQuestionAnswering": {},
    "RoFormerForMultipleChoice": {},
    "RoFormerForTripletMatching": {"triplet_scorer": "cross"},
    "RoFormerForTripletMatching without weights": {"triplet_scorer": "bi", "triplet_loss": "margin"},
    "RoFormerForCausalLM": {"is_decoder": True, "prefix_lm": True, "eos_token_id": 3},
    "RoFormerModel": {"add_pooling_layer": True, "pooler_activation": "tanh"},
    "BertForSequenceClassification": {"id2label": {0: "a", 1: "b"}, "label2id": {"a": 0, "b": 1}},
    "BertForPreTraining": {},
    "BertModel": {},
    "NezhaForSequenceClassification": {},
    "NezhaForPreTraining": {},
    "NezhaModel": {},
    "RoFormerForMaskedLM": {
        "use_cache": False,
        "task_specific_params": {"a": 1},
        "a_field_of_mine": [3, None],
        "hidden_act": "swish",
        "add_pooling_layer": True,
        "pooler_activation": "tanh",
        "sparse_prediction": True,
        "bos_token_id": 7,
    },
    "BertForSequenceClassification with other fields": {
        "classifier_dropout": 0.3,
        "hidden_act": "gelu_new",
        "num_labels": 5,
        "prefix": "x",
    },
    "NezhaForTokenClassification": {"classifier_dropout": None, "chunk_size_feed_forward": 2, "eos_token_id": 5},
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_every_head_there_and_back(head, dtype, tmp_path):
    architecture = head.split()[0]
    saved(tmp_path / "model", architecture, dtype=getattr(torch, dtype), **HEADS[head])
    report, again = there_and_back(tmp_path, dtype, verify=True)
    assert (again.extras, again.ignored_settings) == ({}, [])
    assert AutoConfig.from_pretrained(tmp_path / "again").architectures == [architecture]
    assert again.family == report.title == info(tmp_path / "legacy").family
    # bert4keras takes all fields of the file for arguments.
    written = json.loads((tmp_path / "legacy" / "bert_config.json").read_text())
    assert not (HEADS[head].keys() - {"hidden_act"}) & written.keys()
    has_language_model = any(name in architecture for name in ("CausalLM", "PreTraining", "MaskedLM"))
    assert ("with_mlm" in report.call) == has_language_model
    assert any("language-model head" in note for note in report.notes) != has_language_model
    assert "bi" not in HEADS[head].values() or report.task == []


def test_a_folder_of_transformers_and_one_of_shards(tmp_path):
    """A model saved by plain transformers, in shards, with more rows of embeddings than entries."""
    vocab = LEGACY / "word" / "vocab.txt"
    config = small_config(transformers.RoFormerConfig, vocab_size=len(entries_of(vocab)) + 5)
    model = transformers.models.roformer.RoFormerForMaskedLM(config)
    model.save_pretrained(tmp_path / "model", max_shard_size="4KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    shutil.copy(vocab, tmp_path / "model")
    report = export_tf(tmp_path / "model", tmp_path / "legacy", padded_vocabulary=True)
    assert "5 rows" in " ".join(report.notes)
    entries = entries_of(tmp_path / "legacy" / "vocab.txt")
    assert len(set(entries)) == config.vocab_size and entries[:-5] == entries_of(vocab)
    convert(tmp_path / "legacy", tmp_path / "again")
    again, original = load_file(tmp_path / "again" / "model.safetensors"), model.state_dict()
    assert len(again) > 30 and all(torch.equal(again[key], original[key]) for key in again)


@pytest.mark.parametrize(("family", "add_sep_token"), [("RoFormerForCausalLM", True), ("RoFormerForMaskedLM", False)])
def test_no_setting_of_the_tokenizer_is_lost(family, add_sep_token, tmp_path):
    vocab = LEGACY / "word" / "vocab.txt"
    entries = entries_of(vocab)
    saved(tmp_path / "model", family, is_decoder=family == "RoFormerForCausalLM", vocab_size=len(entries) + 3)
    tokenizer = RoFormerTokenizer(
        vocab, do_lower_case=False, add_sep_token=add_sep_token, model_max_length=77, padding_side="left"
    )
    tokenizer.add_tokens([AddedToken("[新词]", normalized=False, single_word=True, lstrip=True, rstrip=True), "海"])
    tokenizer.add_special_tokens({"extra_special_tokens": ["[甲]"]})
    tokenizer.save_pretrained(tmp_path / "model")
    report = export_tf(tmp_path / "model", tmp_path / "legacy")
    assert_states(report.notes[0], "added tokens", "海, [新词], [甲]")
    assert "do_lower_case=False" in report.tokenizer and "jieba.cut" in report.tokenizer
    assert entries_of(tmp_path / "legacy" / "vocab.txt") == [*entries, "[新词]", "[甲]", "[unused0]"]
    convert(tmp_path / "legacy", tmp_path / "again", verify=True)
    again, text = AutoTokenizer.from_pretrained(tmp_path / "again"), "明月[新词]照着THE [新词] [甲]海[MASK]"
    assert repr(again.added_tokens_decoder) == repr(tokenizer.added_tokens_decoder)
    assert again.all_special_tokens == tokenizer.all_special_tokens
    assert again(text).input_ids == tokenizer(text).input_ids
    assert again.decode(again(text).input_ids, skip_special_tokens=True) == tokenizer.decode(
        tokenizer(text).input_ids, skip_special_tokens=True
    )
    assert (again.model_max_length, again.padding_side) == (77, "left")


def test_an_export_without_all_settings_of_added_tokens_is_refused(tmp_path):
    saved(tmp_path / "model", "RoFormerForMaskedLM")
    path = export_tf(tmp_path / "model", tmp_path / "legacy").output / "bert_config.json"
    tokens = [{"id": 7, "content": entries_of(path.with_name("vocab.txt"))[7], "special": True}]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer": {"added_tokens": tokens}}))
    with refused(CheckpointError, path, "normalized", repr(tokens[0]["content"]), "export-tf"):
        convert(tmp_path / "legacy", tmp_path / "again")


# What bert4keras has nothing for.

STRETCHED = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
DECODER = ["is_decoder", "language-model head"]
REFUSED = {
    "rope_parameters": ({"rope_parameters": STRETCHED}, ["rope_parameters", "'linear'"]),
    "rope_theta": ({"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}, ["rope_parameters", 5000.0]),
    "trainable_rope": ({"trainable_rope": True}, ["trainable_rope"]),
    "linear attention": ({"attention_type": "linear"}, ["attention_type", "'linear'"]),
    "rotary_value": ({"rotary_value": True}, ["rotary_value"]),
    "activation": ({"hidden_act": "quick_gelu"}, ["hidden_act", "'quick_gelu'"]),
    "epsilon": ({"layer_norm_eps": 1e-5}, ["layer_norm_eps", 1e-05, 1e-12]),
    "untied": ({"tie_word_embeddings": False}, ["tie_word_embeddings"]),
    "no biases": ({"use_bias": False}, ["use_bias"]),
    "pooler": ({"add_pooling_layer": True, "pooler_activation": "mish"}, ["pooler_activation", "'mish'"]),
    "cross-attention": ({"is_decoder": True, "add_cross_attention": True}, ["add_cross_attention"]),
    # bert4keras has models with other positions, such as SimBERT; this package exports none.
    **{
        name: ({"position_encoding": name}, ["position_encoding", repr(name), "'rotary'"])
        for name in ("learned", "sinusoidal", "none")
    },
    "NezhaForMaskedLM": ({"max_relative_position": 32}, ["max_relative_position", 32, 64]),
    # bert4keras masks attention for language models only, and would miss the weights of their head.
    "RoFormerModel": ({"is_decoder": True}, DECODER),
    "RoFormerForSequenceClassification": ({"is_decoder": True, "prefix_lm": True}, DECODER),
}


@pytest.mark.parametrize("what", REFUSED)
def test_settings_that_bert4keras_does_not_compute_are_refused(what, tmp_path):
    fields, facts = REFUSED[what]
    saved(tmp_path / "model", what if what.startswith(("RoFormer", "Nezha")) else "RoFormerForMaskedLM", **fields)
    with refused(CheckpointError, tmp_path / "model" / "config.json", *facts) as caught:
        export_tf(tmp_path / "model", tmp_path / "legacy")
    said = str(caught.value).replace(str(tmp_path), "")
    assert ("bert4keras" in said) != ("position_encoding" in fields)
    assert os.listdir(tmp_path) == ["model"]


# Trained further in bert4keras, with the exported bert_config.json: the model is what was trained.


def exported_beside(folder, tmp_path, architecture="RoFormerForMaskedLM"):
    """Give a legacy folder the bert_config.json of an exported model that has its sizes."""
    convert(folder, tmp_path / "plain")
    sizes = AutoConfig.from_pretrained(tmp_path / "plain").to_dict()
    sizes = {name: sizes[name] for name in sizes if name.endswith("_size") or name.startswith("num_")}
    saved(tmp_path / "model", architecture, folder, **sizes)
    export_tf(tmp_path / "model", tmp_path / "exported")
    shutil.copyfile(tmp_path / "exported" / "bert_config.json", folder / "bert_config.json")


@pytest.mark.parametrize("name", ["unilm", "classification", "encoder", "mlm"])
@pytest.mark.parametrize("architecture", ["RoFormerForMaskedLM", "RoFormerForSequenceClassification"])
def test_an_export_that_keras_trained_further(name, architecture, tmp_path):
    folder = copy_form(FIXTURES / "keras" / name, "best_model.h5", tmp_path / "legacy")
    exported_beside(folder, tmp_path, architecture)
    convert(folder, tmp_path / "again")
    same_tensors(tmp_path / "plain", tmp_path / "again")
    ours, theirs = (AutoConfig.from_pretrained(tmp_path / place) for place in ("plain", "again"))
    for field in ("architectures", "is_decoder", "prefix_lm", "add_pooling_layer", "pooler_activation", "num_labels"):
        assert getattr(ours, field) == getattr(theirs, field), field


@pytest.mark.parametrize(
    ("fields", "options", "says"),
    [
        ({"application": "unilm"}, {}, {"is_decoder": True, "prefix_lm": True}),
        ({"application": "lm"}, {}, {"is_decoder": True, "prefix_lm": False}),
        ({}, {"family": "gpt"}, {"is_decoder": True, "prefix_lm": False}),
    ],
)
def test_an_export_whose_mask_is_named(fields, options, says, tmp_path):
    folder = shutil.copytree(LEGACY / "word", tmp_path / "legacy")
    exported_beside(folder, tmp_path)
    edit_config(folder, **fields)
    convert(folder, tmp_path / "again", **options)
    config = AutoConfig.from_pretrained(tmp_path / "again")
    assert {name: getattr(config, name) for name in says} == says
    assert config.architectures == ["RoFormerForCausalLM"]


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"user_dict": ["海上升"]}, ["user_dict"]),
        ({"word_segmentation": None}, ["word_segmentation=None"]),
        ({"vocab": {"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}}, ["[PAD]", "id 0"]),
        ({"strip_accents": False}, ["do_lower_case", True]),
        ({"cls_token": "[SEP]"}, ["cls_token", "[SEP]", "[CLS]"]),
    ],
)
def test_a_tokenizer_that_a_vocabulary_does_not_tell(arguments, facts, tmp_path):
    saved(tmp_path / "model", "RoFormerForMaskedLM")
    RoFormerTokenizer(**{"vocab": LEGACY / "word" / "vocab.txt"} | arguments).save_pretrained(tmp_path / "model")
    with refused(CheckpointError, tmp_path / "model", *facts):
        export_tf(tmp_path / "model", tmp_path / "legacy")


def test_a_checkpoint_in_the_original_form_is_refused(tmp_path):
    with refused(CheckpointError, LEGACY / "word" / "bert_model.ckpt", "already"):
        export_tf(LEGACY / "word", tmp_path / "legacy")


# The command.


def test_the_command(run, tmp_path):
    saved(tmp_path / "model", "RoFormerForSequenceClassification")
    code, out, err = run("export-tf", tmp_path / "model", tmp_path / "legacy", "--prefix", "my_model.ckpt")
    assert (code, err) == (0, "")
    assert "my_model.ckpt" in out and "task/classifier/out_proj/kernel" in out.replace("\n", "").replace(
        "│", ""
    ).replace(" ", "")
    assert sorted(os.listdir(tmp_path / "legacy")) == [
        "bert_config.json",
        "my_model.ckpt.data-00000-of-00001",
        "my_model.ckpt.index",
        "vocab.txt",
    ]
    code, _, err = run("export-tf", tmp_path / "model", tmp_path / "legacy")
    assert code == 1 and str(tmp_path / "legacy") in err and "--force" in err and err.count("\n") == 1
    assert run("export-tf", tmp_path / "model", tmp_path / "legacy", "--force")[0] == 0
    assert (tmp_path / "legacy" / "bert_model.ckpt.index").exists()
    assert not (tmp_path / "legacy" / "my_model.ckpt.index").exists()


def lose_weight(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["roformer.encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


TROUBLES = {
    "no folder": (shutil.rmtree, ["model", "exist"]),
    "no vocabulary": (
        lambda f: [(f / n).unlink() for n in ("vocab.txt", "tokenizer.json")],
        ["vocab.txt", "tokenizer"],
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), ["no weights", "model.safetensors"]),
    "broken config": (lambda f: (f / "config.json").write_text("{"), ["config.json", "JSON"]),
    "a weight is missing": (lose_weight, ["roformer.encoder.layer.1.output.dense.weight"]),
    "truncated": (lambda f: os.truncate(f / "model.safetensors", 3000), ["model.safetensors", "damaged"]),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_bad_input_gets_one_sentence_and_leaves_nothing(run, trouble, tmp_path):
    change, facts = TROUBLES[trouble]
    saved(tmp_path / "model", "RoFormerForMaskedLM")
    change(tmp_path / "model")
    before = sorted(os.listdir(tmp_path))
    code, out, err = run("export-tf", tmp_path / "model", tmp_path / "legacy")
    assert code == 1 and out == "" and err.count("\n") == 1 and "Traceback" not in err
    assert_states(err, *facts)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("prefix", ["", "a/b", "../up"])
def test_a_prefix_keeps_the_weights_in_the_folder(prefix, tmp_path):
    saved(tmp_path / "model", "RoFormerForMaskedLM")
    with refused(ValueError, repr(prefix), "prefix"):
        export_tf(tmp_path / "model", tmp_path / "legacy", prefix=prefix)
    assert os.listdir(tmp_path) == ["model"]


def test_it_never_writes_over_its_source(tmp_path):
    saved(tmp_path / "model", "RoFormerForMaskedLM")
    with refused(FileExistsError, tmp_path / "model", "folder"):
        export_tf(tmp_path / "model", tmp_path / "model", force=True)


# bert4keras and TensorFlow themselves.


def logits_of(model, inputs):
    tokens = torch.from_numpy(inputs["token_ids"]).long()
    with torch.inference_mode():
        return model.eval()(
            input_ids=tokens,
            token_type_ids=torch.from_numpy(inputs["segment_ids"]).long(),
            attention_mask=(tokens != 0).long(),
        )


@pytest.mark.live
@pytest.mark.skipif(not BERT4KERAS, reason="name a Python that has bert4keras in ROFORMER_BERT4KERAS_PYTHON")
def test_bert4keras_live(tmp_path):
    """bert4keras loads each export as the report says and computes our model's answers; TensorFlow reads every byte."""
    classes = {
        "word": ("RoFormerForMaskedLM", {}),
        "factorized": ("RoFormerForMaskedLM", {"embedding_size": 8}),
        "relu": ("RoFormerForMaskedLM", {"hidden_act": "relu"}),
        "tanh gelu": ("RoFormerForMaskedLM", {"hidden_act": "gelu_pytorch_tanh"}),
        "v2": ("RoFormerForMaskedLM", {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}),
        "gpt": ("RoFormerForCausalLM", {"is_decoder": True, "eos_token_id": 3}),
        "sim": (
            "RoFormerForCausalLM",
            {
                "is_decoder": True,
                "prefix_lm": True,
                "eos_token_id": 3,
                "add_pooling_layer": True,
                "pooler_activation": "linear",
            },
        ),
        "wobert": ("BertForMaskedLM", {"max_position_embeddings": 64}),
        "pre-training": ("BertForPreTraining", {"max_position_embeddings": 64}),
        "wonezha": ("NezhaForMaskedLM", {"max_position_embeddings": 64}),
        "classification": ("RoFormerForSequenceClassification", {}),
        "pooler": ("RoFormerModel", {"add_pooling_layer": True, "pooler_activation": "tanh"}),
        "float16": ("RoFormerForMaskedLM", {"dtype": "float16"}),
        "bfloat16": ("RoFormerForMaskedLM", {"dtype": "bfloat16"}),
    }
    vocab = entries_of(LEGACY / "word" / "vocab.txt")
    random = np.random.default_rng(int.from_bytes(os.urandom(4), "big"))
    inputs = {"token_ids": random.integers(5, len(vocab), (3, 33)), "segment_ids": np.zeros((3, 33), int)}
    inputs["segment_ids"][:, 12:] = 1
    for array in inputs.values():
        array[1, 20:] = 0
    np.savez(tmp_path / "inputs.npz", **inputs)
    jobs, expected = [], {}
    for name, (architecture, fields) in classes.items():
        fields = dict(fields)
        dtype = getattr(torch, fields.pop("dtype", "float32"))
        model = saved(tmp_path / name, architecture, seed=int(random.integers(1 << 30)), dtype=dtype, **fields)
        report = export_tf(tmp_path / name, tmp_path / f"{name} legacy")
        expected[name] = model.float()
        jobs.append(
            {
                "folder": str(report.output),
                "prefix": "bert_model.ckpt",
                "call": report.call,
                "inputs": str(tmp_path / "inputs.npz"),
                "output": str(tmp_path / f"{name}.npz"),
            }
        )
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    command = [BERT4KERAS, str(FIXTURES / "read_with_bert4keras.py"), str(tmp_path / "jobs.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]

    real = inputs["token_ids"] != 0
    for name, model in expected.items():
        found = np.load(tmp_path / f"{name}.npz")
        bundle = TensorBundle(tmp_path / f"{name} legacy" / "bert_model.ckpt")
        for variable in bundle.entries:
            assert found[f"variable:{variable}"].tobytes() == bundle.read(variable).tobytes(), (name, variable)
        backbone = model if not hasattr(model, "classifier") else model.base_model
        outputs = logits_of(backbone, inputs)
        answers = [found[key] for key in sorted(found.files) if key.startswith("output_")]
        if name == "gpt":
            ours = [outputs.logits.softmax(-1)]
        elif name == "sim":
            ours = [outputs.pooler_output, outputs.logits]
        elif name == "pre-training":
            ours = [
                backbone.bert(
                    torch.from_numpy(inputs["token_ids"]),
                    (torch.from_numpy(inputs["token_ids"]) != 0).long(),
                    torch.from_numpy(inputs["segment_ids"]),
                ).pooler_output.detach(),
                outputs.prediction_logits,
            ]
        elif name == "pooler":
            ours = [outputs.pooler_output]
        else:
            ours = [outputs.logits if "logits" in outputs else outputs.last_hidden_state]
        assert len(ours) == len(answers), name
        for mine, theirs in zip(ours, answers, strict=True):
            mine = mine.numpy()
            here = real if mine.ndim == 3 else slice(None)
            difference = np.abs(mine[here] - theirs[here]).max()
            print(f"{name}: {difference:.1e} of {np.abs(theirs[here]).max():.2f}")
            assert difference < 2e-5, name


@pytest.mark.live
@pytest.mark.skipif(not BERT4KERAS, reason="name a Python that has bert4keras in ROFORMER_BERT4KERAS_PYTHON")
def test_bert4keras_prints_what_the_page_says(tmp_path):
    (block,) = (block for block in blocks("docs/converting.md") if block.language == "py")
    convert(REPOSITORY / "examples" / "roformer-mini-zh", tmp_path / "model")
    export_tf(tmp_path / "model", tmp_path / "legacy")
    environment = {**os.environ, "TF_KERAS": "1", "TF_USE_LEGACY_KERAS": "1", "PYTHONUTF8": "1"}
    command = [BERT4KERAS, "-c", block.code]
    done = subprocess.run(command, cwd=tmp_path / "legacy", env=environment, capture_output=True, text=True)
    assert done.stdout.endswith(block.output), done.stderr
