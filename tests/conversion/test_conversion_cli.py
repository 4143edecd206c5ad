"""`roformer convert` on good input and on bad: an exit code, one sentence on stderr, and no half-written folder."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.legacy_checkpoints import edit_config, rewrite
from helpers.messages import assert_states
from helpers.paths import REPOSITORY

from modeling_roformer.conversion.formats.tensor_bundle import TensorBundle

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
INDEX = "bert_model.ckpt.index"
DATA = "bert_model.ckpt.data-00000-of-00001"


@pytest.fixture
def source(tmp_path) -> Path:
    """A copy of the word-level checkpoint, to damage."""
    return shutil.copytree(LEGACY / "word", tmp_path / "legacy")


def assert_refused(result: tuple[int, str, str], tmp_path: Path, *facts: str, left=("legacy",)) -> None:
    """Exit code 1, nothing on stdout, one line on stderr that states the facts, and nothing new in the folder."""
    code, out, err = result
    assert code == 1 and out == ""
    assert err.count("\n") == 1 and err.startswith("roformer: ") and "Traceback" not in err
    assert_states(err, *facts)
    assert sorted(os.listdir(tmp_path)) == sorted(left)


def edited(name: str, edit):
    """Return a change of a folder: `edit` of the bytes of one file."""
    return lambda folder: (folder / name).write_bytes(edit((folder / name).read_bytes()))


def configured(**changes):
    return lambda folder: edit_config(folder, **changes)


def rewritten(change):
    return lambda folder: rewrite(folder, change)


def test_a_good_checkpoint(run, source, tmp_path):
    code, out, err = run("convert", source, tmp_path / "output", "--verify")
    assert code == 0 and err == ""
    for words in ("word-level: 22 words", "RoFormer", "float32", "global_step", "every tensor, after reloading"):
        assert words in out
    written = "config.json model.safetensors vocab.txt tokenizer.json tokenizer_config.json README.md"
    assert set(written.split()) <= set(os.listdir(tmp_path / "output"))
    assert sorted(os.listdir(tmp_path)) == ["legacy", "output"]
    code, out, _ = run("convert", LEGACY / "character", tmp_path / "other", "--dtype", "bfloat16")
    assert code == 0 and "character-level" in out and "bfloat16" in out and "--verify" in out


# A checkpoint of every family, and what is asked for where its variables do not show the family.
FAMILIES = dict.fromkeys(("word", "factorized", "v2", "gpt", "sim", "wobert", "wonezha"), ())
FAMILIES |= {family: ("--family", family) for family in ("gpt", "wonezha")}
LAYER = "bert/encoder/layer_1"
BAD = {
    # name: (change of the folder, facts of the error; {rows} = entries, {less} one less, {more} one more)
    "data half": (edited(DATA, lambda b: b[: len(b) // 2]), [DATA, "truncated"]),
    "data empty": (edited(DATA, lambda b: b""), [DATA, "truncated"]),
    "index missing": (lambda d: (d / INDEX).unlink(), ["legacy", "no weights", ".index"]),
    "index truncated": (edited(INDEX, lambda b: b[:-1]), [INDEX, "not a TensorFlow index"]),
    "index empty": (edited(INDEX, lambda b: b""), [INDEX, "not a TensorFlow index"]),
    "index of something else": (
        edited(INDEX, lambda b: b"<!DOCTYPE html><title>404</title>" * 9),
        [INDEX, "not a TensorFlow index"],
    ),
    "index that is the data": (lambda d: shutil.copyfile(d / DATA, d / INDEX), [INDEX, "not a TensorFlow index"]),
    "index of another checkpoint": (
        lambda d: shutil.copyfile(LEGACY / "float64" / INDEX, d / INDEX),
        [DATA, "truncated"],
    ),
    "config broken": (edited("bert_config.json", lambda b: b[:50]), ["bert_config.json", "JSON"]),
    "config not text": (lambda d: (d / "bert_config.json").write_bytes(b"\xff\xfe\0"), ["bert_config.json", "JSON"]),
    "config a list": (lambda d: (d / "bert_config.json").write_text("[1]"), ["bert_config.json", "JSON object"]),
    "config nested": (lambda d: (d / "bert_config.json").write_text("[" * 99999), ["bert_config.json", "JSON"]),
    "config with a field twice": (
        edited("bert_config.json", lambda b: b.replace(b"{", b'{"hidden_size": 48, ', 1)),
        ["bert_config.json", "'hidden_size'"],
    ),
    "config with a field twice inside": (
        edited("bert_config.json", lambda b: b.replace(b"{", b'{"more": [{"a": 1, "a": 2}], ', 1)),
        ["bert_config.json", "'a'"],
    ),
    "hidden_size missing": (configured(hidden_size=...), ["bert_config.json", "hidden_size", "missing"]),
    "hidden_size a text": (configured(hidden_size="24"), ["bert_config.json", "hidden_size", '"24"']),
    "hidden_size true": (configured(hidden_size=True), ["bert_config.json", "hidden_size", "true"]),
    "no layers": (configured(num_hidden_layers=0), ["bert_config.json", "num_hidden_layers"]),
    "activation": (configured(hidden_act="magic"), ["bert_config.json", "hidden_act", "magic"]),
    "key size": (configured(attention_key_size=4), ["bert_config.json", "attention_key_size"]),
    "wrong hidden_size": (configured(hidden_size=28), [INDEX, "bert_config.json", "24", "28"]),
    "wrong intermediate_size": (configured(intermediate_size=99), [INDEX, "(24, 48)", "(24, 99)"]),
    "wrong type_vocab_size": (configured(type_vocab_size=3), [INDEX, "token_type_embeddings"]),
    "more layers": (configured(num_hidden_layers=1), [INDEX, "layer_1"]),
    "fewer layers": (configured(num_hidden_layers=3), [INDEX, "layer_2"]),
    "vocab missing": (lambda d: (d / "vocab.txt").unlink(), ["vocab.txt", "missing"]),
    "vocab longer": (edited("vocab.txt", lambda b: b + b"more\n"), ["vocab.txt", "{more} entries", "{rows} rows"]),
    "vocab empty": (edited("vocab.txt", lambda b: b""), ["vocab.txt", "empty"]),
    "vocab not UTF-8": (edited("vocab.txt", lambda b: b"\xff" + b), ["vocab.txt", "UTF-8"]),
    "no [SEP]": (edited("vocab.txt", lambda b: b.replace(b"[SEP]", b"sep")), ["vocab.txt", "[SEP]"]),
    "unknown variable": (
        rewritten(lambda v: v.update({f"{LAYER}/attention/self/relative": np.zeros(3, "f4")})),
        [INDEX, f"{LAYER}/attention/self/relative"],
    ),
    "a scalar of the model": (rewritten(lambda v: v.update(logit_scale=np.float32(3))), [INDEX, "logit_scale"]),
    "a step of a layer": (
        rewritten(lambda v: v.update({f"{LAYER}/attention/step": np.float32(3)})),
        [INDEX, f"{LAYER}/attention/step"],
    ),
    "slot of another shape": (
        rewritten(lambda v: v.update({f"{LAYER}/output/dense/kernel/accum": np.zeros((48, 23), "f4")})),
        [INDEX, f"{LAYER}/output/dense/kernel/accum"],
    ),
    "segments beside none": (
        configured(segment_vocab_size=0),
        [INDEX, "bert/embeddings/token_type_embeddings", "bert_config.json"],
    ),
    "alias of a size": (configured(max_position="x"), ["bert_config.json", "max_position", '"x"']),
    "alias of the segments": (configured(segment_vocab_size=-1), ["bert_config.json", "segment_vocab_size", -1]),
    "slot of nothing": (rewritten(lambda v: v.update({"x/adam_m": np.zeros(3, "f4")})), [INDEX, "x/adam_m"]),
    "weight without variable": (
        rewritten(lambda v: v.pop(f"{LAYER}/output/dense/kernel")),
        [INDEX, f"{LAYER}/output/dense/kernel", ".encoder.layer.1.output.dense.weight"],
    ),
    "no RoFormer": (
        rewritten(lambda v: (v.clear(), v.update({"conv/kernel": np.zeros(3, "f4")}))),
        [INDEX, "bert/embeddings/word_embeddings", "conv/kernel"],
    ),
    "no variables": (rewritten(lambda v: v.clear()), [INDEX, "bert/embeddings/word_embeddings"]),
    "weight of integers": (
        rewritten(lambda v: v.update({f"{LAYER}/output/dense/kernel": np.zeros((48, 24), "i4")})),
        [INDEX, f"{LAYER}/output/dense/kernel", "int32"],
    ),
    "kernel transposed": (
        rewritten(lambda v: v.update({f"{LAYER}/output/dense/kernel": np.zeros((24, 48), "f4")})),
        [INDEX, f"{LAYER}/output/dense/kernel", "(24, 48)", "(48, 24)"],
    ),
}


# Damage of a file is found before the family is; the variables and sizes of each family are its own.
ONCE = [name for name in BAD if name.startswith(("data", "index", "footer", "config"))]


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for name in BAD for family in (["word"] if name in ONCE else FAMILIES)]
)
def test_bad_input(family, name, run, tmp_path):
    source = shutil.copytree(LEGACY / family, tmp_path / "legacy")
    rows = json.loads((source / "bert_config.json").read_text())["vocab_size"]
    damage, facts = BAD[name]
    damage(source)
    facts = [str(fact).format(rows=rows, more=rows + 1) for fact in facts]
    assert_refused(run("convert", source, tmp_path / "output", *FAMILIES[family]), tmp_path, *facts)


# Parts of some families only: the families, the variables to remove, and the weight that the error names.
PARTS = {
    "half a head": (
        ("word", "factorized", "gpt", "sim", "wobert", "wonezha"),
        "cls/predictions/transform/dense",
        "cls.predictions.transform.dense.weight",
    ),
    "projection": (("factorized",), "bert/encoder/embedding_hidden_mapping_in/", "roformer.embeddings_project."),
    "half a pooler": (("sim",), "bert/pooler/dense/bias", "roformer.pooler.dense.bias"),
    "a bias": (
        ("word", "factorized", "gpt", "sim", "wobert", "wonezha"),
        f"{LAYER}/output/dense/bias",
        ".encoder.layer.1.output.dense.bias",
    ),
}


@pytest.mark.parametrize(("family", "part"), [(family, part) for part in PARTS for family in PARTS[part][0]])
def test_a_part_is_missing(family, part, run, tmp_path):
    _, start, key = PARTS[part]
    source = shutil.copytree(LEGACY / family, tmp_path / "legacy")
    rewrite(source, lambda v: [v.pop(name) for name in list(v) if name.startswith(start)])
    result = run("convert", source, tmp_path / "output", *FAMILIES[family])
    assert_refused(result, tmp_path, INDEX, start, key)


def test_a_distance_that_is_none(run, tmp_path):
    source = shutil.copytree(LEGACY / "wonezha", tmp_path / "legacy")
    edit_config(source, max_relative_position="far")
    assert_refused(run("convert", source, tmp_path / "output"), tmp_path, "max_relative_position", '"far"')


@pytest.mark.parametrize("name", ["every_dtype", "nothing"])
def test_folders_of_something_else(name, run, tmp_path):
    assert_refused(run("convert", LEGACY.parent / name, tmp_path / "output"), tmp_path, name, left=())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_byte_flipped_in_any_variable(family, run, tmp_path):
    """Also in those that are left out; tests of the reader flip every byte of a small index and of its data."""
    source = shutil.copytree(LEGACY / family, tmp_path / "legacy")
    good = (source / DATA).read_bytes()
    for variable, entry in list(TensorBundle(source / "bert_model.ckpt").entries.items())[::4]:
        at = entry.offset + entry.size - 1
        (source / DATA).write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        result = run("convert", source, tmp_path / "output", *FAMILIES[family])
        assert_refused(result, tmp_path, DATA, variable, "checksum")
    (source / DATA).write_bytes(good)
    assert run("convert", source, tmp_path / "output", *FAMILIES[family])[0] == 0


def test_an_output_that_is_in_use(run, source, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    (output / "mine.txt").write_text("precious")
    (source / INDEX).write_bytes(b"nonsense")  # the output is refused before anything is read
    result = run("convert", source, output)
    assert_refused(result, tmp_path, str(output), "not empty", left=("legacy", "output"))
    assert os.listdir(output) == ["mine.txt"] and (output / "mine.txt").read_text() == "precious"
    shutil.rmtree(output)
    output.write_text("a file")
    assert_refused(run("convert", source, output), tmp_path, "Not a directory", left=("legacy", "output"))


def test_the_choices_of_dtype_and_family(run, source, tmp_path):
    assert_refused(run("convert", source, tmp_path / "o", "--dtype", "int8"), tmp_path, "int8", "float32, float16")
    assert_refused(run("convert", source, tmp_path / "o", "--family", "t5"), tmp_path, "t5", "auto, roformer")
