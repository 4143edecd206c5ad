"""Converting legacy checkpoints: the numbers are bert4keras' own, and the folder is what users load."""

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.legacy_checkpoints import edit_config, rewrite
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

import modeling_roformer
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.formats.dtypes import cast
from modeling_roformer.conversion.formats.tensor_bundle import TensorBundle
from modeling_roformer.conversion.formats.tensor_bundle_writer import write_bundle
from modeling_roformer.conversion.inspection.info import info
from modeling_roformer.conversion.tf_exporter import export_tf

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "output"


@pytest.fixture
def source(tmp_path) -> Path:
    """A copy of the word-level checkpoint, to change."""
    return shutil.copytree(LEGACY / "word", tmp_path / "legacy")


# Numbers.


TRAINED = REPOSITORY / "examples" / "roformer-mini-zh"


def test_the_trained_checkpoint_answers_as_before(output):
    """Logits of up to 16: 5e-5 from the formulas in float64, which is rounding, 2e-4 from bert4keras; same top five."""
    report = convert(TRAINED, output)
    assert report.word_level and report.words == 6801 and report.layers == 6
    sentences = json.loads((TRAINED / "reference.json").read_text(encoding="utf-8"))
    expected = np.load(TRAINED / "reference_logits.npz")
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(output).eval(), AutoTokenizer.from_pretrained(output)
    assert len(sentences) == 7
    for i, sentence in enumerate(sentences):
        encoded = tokenizer(sentence["text"], return_tensors="pt")
        assert encoded["input_ids"][0].tolist() == sentence["token_ids"]
        with torch.inference_mode():
            found = model(**encoded).logits[0, sentence["mask_at"]].numpy()
        np.testing.assert_allclose(found, expected["float64"][i], rtol=0, atol=5e-5)
        np.testing.assert_allclose(found, expected["logits"][i], rtol=0, atol=2e-4)
        top = tokenizer.convert_ids_to_tokens(np.argsort(-found)[:5].tolist())
        assert top == [token for token, _ in sentence["top"]]


# The folder.


def test_the_configuration(output, source):
    edit_config(source, hidden_dropout_prob=0.25, attention_probs_dropout_prob=None, max_position_embeddings=2000)
    convert(source, output)
    config = AutoConfig.from_pretrained(output)
    assert isinstance(config, modeling_roformer.RoFormerConfig) and config.model_type == "roformer"
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.25, 0.0)
    assert (config.max_position_embeddings, config.layer_norm_eps, config.hidden_act) == (2000, 1e-12, "gelu")
    assert config.rotary_value is False and config.tie_word_embeddings


@pytest.mark.parametrize(
    ("theirs", "field", "ours"),
    [
        ({}, "max_position_embeddings", 1536),  # the longest table of plain transformers
        ({"dropout_rate": 0.3, "segment_vocab_size": 2, "type_vocab_size": 7}, "hidden_dropout_prob", 0.3),
        ({"hidden_act": "gelu_tanh"}, "hidden_act", "gelu_pytorch_tanh"),
        ({"hidden_act": "swish"}, "hidden_act", "silu"),
        ({"hidden_act": "relu"}, "hidden_act", "relu"),
    ],
)
def test_fields_of_the_configuration(output, source, theirs, field, ours):
    """bert4keras' names are preferred to BERT's own, as bert4keras prefers them."""
    edit_config(source, **theirs)
    convert(source, output)
    assert getattr(AutoConfig.from_pretrained(output), field) == ours


@pytest.mark.parametrize("name", ["word", "character"])
def test_the_tokenizer(name, output):
    report = convert(LEGACY / name, output)
    entries = (LEGACY / name / "vocab.txt").read_bytes().decode().removesuffix("\n").split("\n")
    assert (output / "vocab.txt").read_bytes() == (LEGACY / name / "vocab.txt").read_bytes()
    assert report.vocab_size == len(entries)
    assert report.word_level == (name == "word") and report.words == (22 if name == "word" else 0)
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert tokenizer.convert_tokens_to_ids(entries) == list(range(len(entries)))
    assert tokenizer.pad_token_id == entries.index("[PAD]") == AutoConfig.from_pretrained(output).pad_token_id
    ids = tokenizer("听见明月")["input_ids"]
    words = ["听见", "明月"] if name == "word" else ["听", "见", "明", "月"]
    assert ids == [entries.index(token) for token in ["[CLS]", *words, "[SEP]"]]


def test_capital_letters_of_a_cased_vocabulary_are_kept(source, output):
    entries = (source / "vocab.txt").read_text(encoding="utf-8").split("\n")
    place = entries.index("z")
    entries[place] = "A"
    (source / "vocab.txt").write_text("\n".join(entries), encoding="utf-8")
    report = convert(source, output)
    assert "kept" in report.rows["capital letters"]
    assert AutoTokenizer.from_pretrained(output)("Aa", add_special_tokens=False).input_ids[:1] == [place]
    export_tf(output, output.with_name("exported"))
    convert(output.with_name("exported"), output, force=True)
    assert not AutoTokenizer.from_pretrained(output).do_lower_case


@pytest.mark.parametrize("end", [" \n", "\u3000\n", "\t{}\n", "\r\n"])
def test_the_vocabulary_is_written_as_every_program_reads_it(source, output, end):
    """Without the white space behind entries, and the ids, that bert4keras ignores."""
    clean = (source / "vocab.txt").read_bytes().decode()
    lines = [line + end.format(number) for number, line in enumerate(clean.split("\n")[:-1])]
    (source / "vocab.txt").write_bytes("\ufeff".encode() + "".join(lines).encode())
    convert(source, output)
    assert (output / "vocab.txt").read_bytes().decode() == clean
    assert AutoTokenizer.from_pretrained(output).tokenize("听见明月") == ["听见", "明月"]


def test_padding_is_id_0(output, source):
    entries = (source / "vocab.txt").read_text(encoding="utf-8").split("\n")
    entries[0], entries[5] = entries[5], entries[0]
    (source / "vocab.txt").write_text("\n".join(entries), encoding="utf-8")
    with refused(CheckpointError, source / "vocab.txt", "[PAD]", "id 0"):
        convert(source, output)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["word", "bfloat16", "float64"])
def test_the_dtype_asked_for(name, dtype, output):
    convert(LEGACY / name, output, dtype=dtype, verify=True)
    bundle = TensorBundle(LEGACY / name / "bert_model.ckpt")
    kernel = "bert/encoder/layer_0/intermediate/dense/kernel"
    source = cast(bundle.read(kernel), bundle.entries[kernel].dtype, "float64")
    found = load_file(output / "model.safetensors")["roformer.encoder.layer.0.intermediate.dense.weight"]
    assert found.dtype == getattr(torch, dtype)
    expected = torch.from_numpy(source.T.copy())
    if dtype == "bfloat16":  # torch rounds float64 to bfloat16 by way of float32, too
        expected = expected.float()
    assert torch.equal(found, expected.to(found.dtype))
    assert AutoModelForMaskedLM.from_pretrained(output, dtype="auto").dtype == found.dtype


def test_a_number_that_the_dtype_cannot_hold(output, source):
    rewrite(source, lambda variables: variables["cls/predictions/output_bias"].__setitem__(3, 1e5))
    with refused(CheckpointError, "cls/predictions/output_bias", "float16"):
        convert(source, output, dtype="float16")
    assert not output.exists()
    convert(source, output, dtype="bfloat16")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["bert/embeddings/word_embeddings", "bert/encoder/layer_1/output/dense/kernel"])
def test_a_diverged_checkpoint_is_refused(name, value, dtype, output, source):
    """Its checksums are right, since TensorFlow wrote these values."""
    bundle = TensorBundle(source / "bert_model.ckpt")
    arrays = {name: bundle.read(name) for name in bundle.entries}
    arrays[name][-1, -1] = value
    stored = dict.fromkeys(arrays, "float32") | {name: dtype}
    arrays[name] = cast(arrays[name], "float32", dtype)
    write_bundle(source / "bert_model.ckpt", arrays.items(), dtype=stored)
    with refused(CheckpointError, source / "bert_model.ckpt.index", name, "finite"):
        convert(source, output)
    assert not output.exists()


# What was found.


def test_the_report_names_what_was_left_out_and_the_card_speaks_of_the_checkpoint(output):
    report = convert(LEGACY / "word", output)
    card = (output / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\n") and f"{report.parameters:,}" in card and "float32" in card
    assert report.files == sorted(os.listdir(output)) and "README.md" in report.files
    assert report.extras == {
        "optimiser state": [f"bert/embeddings/token_type_embeddings/{slot}" for slot in ("adam_m", "adam_v")],
        "next-sentence head": [f"cls/seq_relationship/output_{part}" for part in ("bias", "weights")],
        "training step": ["global_step"],
    }
    assert report.ignored_settings == ["directionality"]
    state = load_file(output / "model.safetensors")
    assert report.variables == len(state)
    assert report.parameters == sum(tensor.numel() for tensor in state.values())


KERNEL = "bert/encoder/layer_0/output/dense/kernel"  # of shape (48, 24)
# What scripts of training leave in a checkpoint: name, shape and dtype, and the kind in the report.
OF_TRAINING = [
    (f"{KERNEL}/{slot}", (48, 24), "f4", "optimiser state")
    for slot in ("adam_m", "Adam", "Adam_1", "lamb_v", "Momentum", "accum", "accum_1", "BERTAdam", "optim/adam_mx")
]
OF_TRAINING += [
    (f"{KERNEL}_slot_m", (48, 24), "f4", "optimiser state"),
    (f"{KERNEL}/vr", (48,), "f4", "optimiser state"),  # Adafactor's, of a row
    *(
        (f"{KERNEL}/{slot}", (48, 24), "f4", "moving averages of the weights")
        for slot in ("ExponentialMovingAverage", "ema", "moving_average", "swa", "ema/biased")
    ),
    (f"{KERNEL}/ExponentialMovingAverage/local_step", (), "f4", "training step"),
    *(
        (name, (), "f4", "training step")
        for name in ("global_step", "local_step", "loss_scale", "loss_scale/good_steps", "beta1_power_1")
    ),
    *(
        (f"{scope}/{KERNEL}/{slot}", (48, 24), "f4", "optimiser state")
        for scope in ("training/Adam", "Adam", "AdamWeightDecayOptimizer")
        for slot in ("m", "v")
    ),
    ("training/Adam/Variable_1", (24,), "f4", "optimiser state"),  # as early Keras names it
    ("Adam/iter", (), "i8", "optimiser state"),
    *((f"{scope}/{KERNEL}", (48, 24), "f4", "moving averages of the weights") for scope in ("ema", "moving_averages")),
    *((name, (), "f4", "training step") for name in ("loss_scale/current", "best_loss", "best_f1")),
    ("good_steps", (), "i8", "training step"),
    ("num_updates", (), "i8", "training step"),
]


def test_variables_of_training_are_left_out_and_listed(source, output, tmp_path):
    random = np.random.default_rng(0)
    more = {name: random.normal(size=shape).astype(dtype) for name, shape, dtype, _ in OF_TRAINING}
    rewrite(source, lambda v: v.update(more))
    report = convert(source, output, verify=True)
    for name, *_, kind in OF_TRAINING:
        assert name in report.extras[kind], name
    assert info(source).left_out == {kind: len(names) for kind, names in report.extras.items()}
    convert(LEGACY / "word", tmp_path / "without")
    found, expected = (load_file(folder / "model.safetensors") for folder in (output, tmp_path / "without"))
    assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in found)


def test_averaged_weights_are_named_in_the_summary(run, source, output):
    rewrite(source, lambda v: v.update({f"{KERNEL}/ExponentialMovingAverage": v[KERNEL] + 1}))
    code, out, _ = run("convert", source, output)
    assert code == 0 and "moving averages" in out and "ExponentialMovingAverage" in "".join(out.split())


def test_the_layer_of_a_task_in_a_checkpoint_is_left_out_on_request(output, tmp_path):
    """Google's run_classifier.py saves it with a pooler, and without the head of the language model."""
    source = shutil.copytree(LEGACY / "wobert", tmp_path / "legacy")
    task = {"output_weights": np.ones((2, 24), "f4"), "output_bias": np.ones(2, "f4")}
    pooler = {"bert/pooler/dense/kernel": np.full((24, 24), 2, "f4"), "bert/pooler/dense/bias": np.ones(24, "f4")}
    rewrite(source, lambda v: [v.pop(name) for name in list(v) if name.startswith("cls/")])
    rewrite(source, lambda v: v.update(task | pooler))
    with refused(CheckpointError, "output_bias", "--head none"):
        convert(source, output)
    assert_states(info(source).notes, "output_bias", "--head none")
    report = convert(source, output, head="none", verify=True)
    assert sorted(report.extras["task layer"]) == sorted(task) and report.architecture == "BertModel"
    assert torch.equal(load_file(output / "model.safetensors")["pooler.dense.weight"], torch.full((24, 24), 2.0))


def test_slots_do_not_hide_that_a_model_is_a_v2(output, tmp_path):
    source = shutil.copytree(LEGACY / "v2", tmp_path / "legacy")
    rewrite(source, lambda v: v.update({f"{name}/adam_m": 0 * v[name] for name in list(v) if name.endswith("/kernel")}))
    assert convert(source, output).family == info(source).family == "RoFormer-V2"


# Models without segments.


@pytest.mark.parametrize("name", ["word", "factorized", "v2", "sim", "wobert", "wonezha"])
@pytest.mark.parametrize("fields", [{}, {"segment_vocab_size": 0}, {"segment_vocab_size": 0, "type_vocab_size": ...}])
def test_a_model_without_segments_is_one_whose_segments_are_zero(name, fields, output, tmp_path):
    """Whose numbers and configuration are those of the same variables with a table of segments that has only zeros."""
    segments = "bert/embeddings/token_type_embeddings"
    with_zeros = shutil.copytree(LEGACY / name, tmp_path / "zeros")
    rewrite(with_zeros, lambda v: v.update({segments: 0 * v[segments]}))
    without = shutil.copytree(LEGACY / name, tmp_path / "without")
    rewrite(without, lambda v: [v.pop(variable) for variable in list(v) if variable.startswith(segments)])
    edit_config(without, **fields)
    family = {"family": "wonezha"} if name == "wonezha" else {}
    report = convert(without, output, verify=True, **family)
    assert_states(report.rows["segments"], segments, "zeros")
    convert(with_zeros, tmp_path / "expected", **family)
    found, expected = (load_file(folder / "model.safetensors") for folder in (output, tmp_path / "expected"))
    assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in found)
    assert (output / "config.json").read_bytes() == (tmp_path / "expected" / "config.json").read_bytes()


# The archive as it was published.


def pack(path: Path, folder: Path, inside: str = "", extra_members: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, inside + file.name)
        for name, content in (extra_members or {}).items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("inside", ["", "chinese_roformer_L-2/", "a/b/"])
def test_an_archive_converts_as_its_folder_does(inside, output, tmp_path):
    litter = {"__MACOSX/._bert_config.json": b"x", f"{inside}.DS_Store": b"x", "notes/readme.txt": b"x"}
    litter |= {f"{inside}2_Dense/{name}": b"x" for name in ("config.json", "model.safetensors")}
    archive = pack(tmp_path / "checkpoint.zip", LEGACY / "word", inside, litter)
    convert(archive, output)
    convert(LEGACY / "word", tmp_path / "direct")
    for file in output.iterdir():
        if file.name != "README.md":
            assert file.read_bytes() == (tmp_path / "direct" / file.name).read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.zip", "direct", "output"]


def test_an_archive_cannot_write_elsewhere(output, tmp_path):
    evil = {"../escaped.txt": b"x", "/tmp/escaped-from-archive": b"x", "..\\escaped2.txt": b"x"}
    archive = pack(tmp_path / "checkpoint.zip", LEGACY / "word", "", evil)
    convert(archive, output)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.zip", "output"]
    assert not os.path.exists("/tmp/escaped-from-archive") and not (tmp_path.parent / "escaped.txt").exists()


def test_errors_inside_an_archive_name_the_archive(output, source, tmp_path):
    (source / "bert_model.ckpt.data-00000-of-00001").unlink()
    archive = pack(tmp_path / "checkpoint.zip", source)
    with refused(CheckpointError, f"{archive}/bert_model.ckpt.data-00000-of-00001", "missing"):
        convert(archive, output)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.zip", "legacy"]


def test_archives_that_cannot_be_read(output, tmp_path):
    path = tmp_path / "checkpoint.zip"
    path.write_bytes(b"no archive")
    with refused(CheckpointError, path, "folder", ".zip"):
        convert(path, output)
    pack(path, LEGACY / "word", "one/", {"two/bert_config.json": b"{}", "two/vocab.txt": b""})
    with refused(CheckpointError, path, "2 folders", "bert_config.json"):
        convert(path, output)
    assert os.listdir(tmp_path) == ["checkpoint.zip"]


# Which checkpoint.


def test_several_checkpoints_need_a_choice(output, source):
    for file in list(source.glob("bert_model.ckpt*")):
        shutil.copyfile(file, source / file.name.replace("bert_model.ckpt", "model.ckpt-1000"))
    with refused(CheckpointError, source, "--checkpoint", "bert_model.ckpt", "model.ckpt-1000"):
        convert(source, output)
    for choice in ("model.ckpt-1000", "model.ckpt-1000.index", "model.ckpt-1000.data-00000-of-00001"):
        convert(source, output, checkpoint=choice)
        shutil.rmtree(output)
    with refused(CheckpointError, source / "other.index", "missing"):
        convert(source, output, checkpoint="other")


def test_config_json_is_read_without_an_error(output, source):
    (source / "bert_config.json").rename(source / "config.json")
    convert(source, output)


# Verification.


def test_verification_finds_a_wrong_number(output, monkeypatch):
    damaged = []

    def write_and_damage(path, tensors, dtypes):
        from modeling_roformer.conversion.formats.safetensors_file import write_safetensors

        damaged.append(list(tensors)[-1])
        tensors[damaged[0]].reshape(-1)[-1] += 1
        write_safetensors(path, tensors, dtypes)

    monkeypatch.setattr(sys.modules[convert.__module__], "write_safetensors", write_and_damage)
    with pytest.raises(CheckpointError) as caught:
        convert(LEGACY / "word", output, verify=True)
    assert_states(caught.value, *damaged)
    assert not output.exists()
