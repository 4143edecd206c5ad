"""Large checkpoints, replacing what is there, and many at once."""

import json
import os
import shutil
import subprocess
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import command_line, pages
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from modeling_roformer import RoFormerConfig
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.families import roformer_v2
from modeling_roformer.conversion.formats.tensor_bundle_writer import write_bundle

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "output"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but the card, which holds the date."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "README.md"
    }


@contextmanager
def memory_below(limit: float):
    """Fails where more bytes were allocated at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


# Shards.


@pytest.mark.parametrize("size", ["20KB", 20_000])
def test_shards_hold_what_one_file_does(size, output, tmp_path):
    convert(LEGACY / "shards", tmp_path / "whole")
    report = convert(LEGACY / "shards", output, max_shard_size=size, verify=True)
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    index = json.loads((output / "model.safetensors.index.json").read_text())
    names = sorted(set(index["weight_map"].values()))
    assert names == [f"model-{i:05d}-of-{len(names):05d}.safetensors" for i in range(1, len(names) + 1)]
    assert len(names) > 3 and set(names) <= set(report.files) and "model.safetensors" not in report.files
    assert index["metadata"] == {
        "total_size": sum(tensor.nbytes for tensor in whole.values()),
        "total_parameters": report.parameters,
    }
    loaded = {}
    for name in names:
        shard = load_file(output / name)
        assert sum(tensor.nbytes for tensor in shard.values()) <= 20_000 or len(shard) == 1
        assert {key for key, where in index["weight_map"].items() if where == name} == shard.keys()
        loaded |= shard
    assert loaded.keys() == whole.keys() and all(torch.equal(loaded[key], whole[key]) for key in whole)
    model, info = AutoModelForMaskedLM.from_pretrained(output, output_loading_info=True)
    assert not any(info.values())
    # The index is as save_pretrained writes it, but for which tensors lie together.
    model.save_pretrained(tmp_path / "saved", max_shard_size="20KB")
    theirs = json.loads((tmp_path / "saved" / "model.safetensors.index.json").read_text())
    assert theirs["metadata"] == index["metadata"] and theirs["weight_map"].keys() == index["weight_map"].keys()


@pytest.mark.parametrize("size", ["big", "5 parsecs"])
def test_sizes_that_are_none(size, run, output, tmp_path):
    code, out, err = run("convert", LEGACY / "word", output, f"--max-shard-size={size}")
    assert code == 1 and not out and err.startswith("roformer: ") and "'" in err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("max_shard_size", "limit"), [("5GB", 2.2), ("10MB", 0.5)])
def test_memory_is_below_that_of_two_copies_of_the_weights_or_of_two_shards(max_shard_size, limit, output, tmp_path):
    """A V2 of 80 MB; 2.2 copies of its weights, or 40 MB if it is written in shards of 10 MB."""
    source = shutil.copytree(LEGACY / "v2", tmp_path / "legacy")
    raw = json.loads((source / "bert_config.json").read_text())
    raw |= {"hidden_size": 256, "num_hidden_layers": 24, "intermediate_size": 1024, "num_attention_heads": 4}
    (source / "bert_config.json").write_text(json.dumps(raw))
    for file in source.glob("bert_model*"):
        file.unlink()
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    config = RoFormerConfig(**{name: raw[name] for name in names}, norm_type="rms_norm", use_bias=False)
    weights = roformer_v2.weights(config)
    write_bundle(source / "bert_model.ckpt", ((w.variable, np.ones(w.shape, "f4")) for w in weights), num_shards=5)
    convert(LEGACY / "v2", output)  # what is imported and cached once is not counted
    shutil.rmtree(output)
    with memory_below(limit * 80e6):
        convert(source, output, max_shard_size=max_shard_size)
    assert sum(file.stat().st_size for file in output.glob("model*.safetensors")) > 75e6


# Replacing what is there.


def test_converting_again(run, output, tmp_path):
    assert run("convert", LEGACY / "word", output)[0] == 0
    (output / "notes.txt").write_text("old")
    before = contents(output)
    code, out, err = run("convert", LEGACY / "character", output)
    assert code == 1 and not out and str(output) in err and "--force" in err and contents(output) == before
    code, out, err = run("convert", LEGACY / "character", output, "--force")
    assert code == 1 and not out and contents(output) == before
    assert_states(err, output, "notes.txt")
    (output / "notes.txt").unlink()
    code, out, err = run("convert", LEGACY / "character", output, "--force", "--verify")
    assert (code, err) == (0, "") and "character-level" in out
    convert(LEGACY / "character", tmp_path / "fresh")
    before = contents(output)
    assert before == contents(tmp_path / "fresh")
    source = shutil.copytree(LEGACY / "character", tmp_path / "legacy")
    (source / "vocab.txt").unlink()
    code, _, err = run("convert", source, output, "--force")  # what fails leaves what is there
    assert code == 1 and "vocab.txt" in err and contents(output) == before
    assert sorted(os.listdir(tmp_path)) == ["fresh", "legacy", "output"]


def test_a_checkpoint_is_not_replaced_by_what_it_becomes(run, tmp_path):
    source = shutil.copytree(LEGACY / "word", tmp_path / "models" / "legacy")
    for folder in (source, source.parent):
        (folder / "config.json").write_text(json.dumps({"model_type": "roformer"}))
        code, _, err = run("convert", source, folder, "--force")
        assert code == 1
        assert_states(err, folder)
    assert (source / "bert_model.ckpt.index").exists()


# Many at once.


@pytest.mark.slow
def test_the_loop_of_the_page_converts_folders_and_archives_and_goes_on_after_a_failure(tmp_path):
    sources = tmp_path / "tests" / "fixtures" / "legacy"  # that the page names
    for name, fixture in (("damaged", "sim"), ("roformer", "word")):
        shutil.copytree(LEGACY / fixture, sources / name)
    (sources / "damaged" / "vocab.txt").unlink()
    shutil.make_archive(str(sources / "a wobert"), "zip", LEGACY, "wobert")
    (loop,) = (line for block in pages.blocks("docs/converting.md") for line in block.commands if "for " in line)
    path = f"{command_line.ROFORMER.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", loop], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert_states(done.stderr, "damaged", "vocab.txt")
    assert done.stderr.count("roformer: ") == 1
    (parent,) = set(tmp_path.iterdir()) - {tmp_path / "tests"}
    for name, architecture in (("a wobert", "BertForMaskedLM"), ("roformer", "RoFormerForMaskedLM")):
        assert json.loads((parent / name / "config.json").read_text())["architectures"] == [architecture]
    assert sorted(os.listdir(parent)) == ["a wobert", "roformer"]
