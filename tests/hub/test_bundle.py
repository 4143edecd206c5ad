"""`roformer bundle`: a folder with its code, made locally, which loads where this package cannot be imported."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers.absent_package import ABSENT
from helpers.command_line import ROFORMER
from helpers.exporting import write_graph
from helpers.hub_server import content, published
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, pipeline

from modeling_roformer.conversion import convert
from modeling_roformer.hub import bundle, push
from modeling_roformer.tokenization import RoFormerTokenizer

LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"
TEXTS = ["今天[MASK]很好，我想去公园玩。", "苹果公司在北京召开了新闻发布会，介绍iPhone 12。", "[MASK]"]


@pytest.fixture
def word(tmp_path):
    """A word-level model in several files."""
    convert(LEGACY / "word", tmp_path / "word", max_shard_size="20KB")
    return tmp_path / "word"


def test_it_is_what_push_publishes_with_code(hub, word, tmp_path, run):
    write_graph(word, external=True)
    (word / "runs").mkdir()
    (word / "optimizer.pt").write_text("of training")
    config = json.loads((word / "config.json").read_text())
    (word / "config.json").write_text(json.dumps(config | {"_name_or_path": "/home/me/secret/word"}))
    before = content(word)
    code, out, err = run("bundle", word, tmp_path / "new" / "out")
    assert code == 0 and content(word) == before
    push(word, "somebody/model", with_code=True, tell=lambda sentence: None)
    bundled = content(tmp_path / "new" / "out")
    assert bundled == published(hub)
    assert {"onnx/model.onnx", "onnx/model.onnx_data", "model.safetensors.index.json", "model.py"} <= set(bundled)
    assert_states(out, tmp_path / "new" / "out", "trust_remote_code=True")
    assert_states(err, "optimizer.pt")
    # A bundle is a model folder too.
    bundle(tmp_path / "new" / "out", tmp_path / "again")
    assert content(tmp_path / "again") == bundled


def test_no_pipeline_of_a_stranger_is_bundled(word, tmp_path):
    config = json.loads((word / "config.json").read_text())
    entry = {"evil": {"impl": "../evil.P", "pt": ["AutoModel"], "type": "text"}}
    (word / "config.json").write_text(json.dumps(config | {"custom_pipelines": entry}))
    bundle(word, tmp_path / "out", tell=lambda sentence: None)
    assert "custom_pipelines" not in json.loads((tmp_path / "out" / "config.json").read_text())


@pytest.mark.parametrize("force", [False, True])
def test_existing_files_are_not_lost(word, tmp_path, force):
    (tmp_path / "link").symlink_to(word, target_is_directory=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    before = content(tmp_path)
    for output in (word, tmp_path / "link", word / "inside" / "deep", tmp_path / "link" / "inside", tmp_path):
        with refused(ValueError, output, word, "inside"):
            bundle(word, output, force=force)
    with refused(FileExistsError, tmp_path / "notes"):
        bundle(word, tmp_path / "notes", force=force)
    assert content(tmp_path) == before
    bundle(word, tmp_path / "out")
    (tmp_path / "out" / "model.py").unlink()
    if not force:
        with refused(FileExistsError, tmp_path / "out", "--force"):
            bundle(word, tmp_path / "out")
        assert not (tmp_path / "out" / "model.py").exists()
    else:
        bundle(word, tmp_path / "out", force=True)
        assert (tmp_path / "out" / "model.py").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"word", "link", "notes", "out"}


def test_refusals_leave_nothing(word, tmp_path, run):
    with refused(ValueError, tmp_path / "none"):
        bundle(tmp_path / "none", tmp_path / "out")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "README.md").write_text(f"---\nbase_model: {word}\n---\n")  # as PEFT writes it
    with refused(ValueError, tmp_path / "adapter", "config.json"):
        bundle(tmp_path / "adapter", tmp_path / "out")
    shutil.rmtree(tmp_path / "adapter")
    (word / "config.json").write_text('{"model_type": "bert"}')
    code, out, err = run("bundle", word, tmp_path / "out")
    assert code == 1 and not out and err.count("\n") == 1
    assert_states(err, word / "config.json", "bert", "roformer")
    assert os.listdir(tmp_path) == ["word"]


def test_a_shard_with_nan_is_not_bundled(word, tmp_path):
    shard = min(word.glob("model-*.safetensors"))
    tensors = load_file(shard)
    name = next(iter(tensors))
    save_file(tensors | {name: np.full_like(tensors[name], np.nan)}, shard, {"format": "pt"})
    with refused(ValueError, shard, name, "finite"):
        bundle(word, tmp_path / "out")
    assert os.listdir(tmp_path) == ["word"]


ELSEWHERE = """
import json
import sys
import numpy
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, pipeline

_, words, sim, texts, output = sys.argv
texts, trust = json.loads(texts), {"trust_remote_code": True}
tokenizer = AutoTokenizer.from_pretrained(words, **trust)
batch = tokenizer(texts, padding=True, return_tensors="pt")
results = {"ids": batch["input_ids"]}
with torch.no_grad():
    for auto in (AutoModel, AutoModelForMaskedLM):
        results[auto.__name__] = auto.from_pretrained(words, **trust).eval()(**batch)[0]
guesses = pipeline("fill-mask", model=words, **trust)(texts[0])
results["scores"], results["tokens"] = [g["score"] for g in guesses], [g["token"] for g in guesses]
results["vectors"] = SentenceTransformer(sim, device="cpu", **trust).encode(texts)
numpy.savez(output, **results)
"""


@pytest.mark.slow
@pytest.mark.parametrize("package", ["present", "absent"])
def test_outputs_are_those_of_the_original_folder(word, tmp_path, package):
    """In a process of its own, with and without this package: model, tokenizer, pipeline and sentence vectors."""
    convert(LEGACY / "sim", tmp_path / "sim", family="sim")
    for name in ("word", "sim"):
        bundle(tmp_path / name, tmp_path / "out" / name)
    script = {
        "present": f"import modeling_roformer\n{ELSEWHERE}",
        "absent": f"{ABSENT}{ELSEWHERE}assert 'modeling_roformer' not in sys.modules",
    }[package]
    folders = [tmp_path / "out" / "word", tmp_path / "out" / "sim"]
    command = [sys.executable, "-c", script, *folders, json.dumps(TEXTS), tmp_path / "results.npz"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [*map(str, command)], env=environment, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "results.npz")

    tokenizer = AutoTokenizer.from_pretrained(word)
    assert type(tokenizer) is RoFormerTokenizer
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert np.array_equal(found["ids"], batch["input_ids"])
    guesses = pipeline("fill-mask", model=str(word))(TEXTS[0])
    assert found["tokens"].tolist() == [guess["token"] for guess in guesses]
    with torch.no_grad():
        expected = {auto.__name__: auto.from_pretrained(word)(**batch)[0] for auto in (AutoModel, AutoModelForMaskedLM)}
    expected["scores"] = [guess["score"] for guess in guesses]
    expected["vectors"] = SentenceTransformer(str(tmp_path / "sim"), device="cpu").encode(TEXTS)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("command", ["bundle", "export-tf"])
def test_half_a_character_in_the_configuration_is_named(word, tmp_path, command):
    """JSON can have it, UTF-8 cannot."""
    config = json.loads((word / "config.json").read_text(encoding="utf-8"))
    (word / "config.json").write_text(json.dumps(config | {"note": "\ud800"}), encoding="utf-8")
    done = subprocess.run([ROFORMER, command, word, tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()
    assert_states(done.stderr, "JSON", r"\ud800")
