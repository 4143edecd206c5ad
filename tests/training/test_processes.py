"""Pre-training in two processes, which learn what one does."""

import json
import os
import subprocess
import sys

import pytest
import torch
from helpers.paths import REPOSITORY
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

SCRIPT = REPOSITORY / "examples" / "pretrain_mlm.py"
TEXT = REPOSITORY / "examples" / "long_document.txt"
MODEL = REPOSITORY / "examples" / "roformer-mini-zh"
STAGES = """stages:
  - {length: 32, batch_size: 4, steps: 3, learning_rate: 1e-3}
  - {length: 64, batch_size: 4, steps: 4, learning_rate: 1e-3, masked: [0.3, 0.15], optimizer: muon}
"""
CONFIG = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def test_two_processes_learn_what_one_does(tmp_path):
    """And go on where both were stopped."""
    lines = TEXT.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "stages.yaml").write_text(STAGES, encoding="utf-8")
    (tmp_path / "corpus.txt").write_text("".join(lines[:20]), encoding="utf-8")
    (tmp_path / "held-out.txt").write_text("".join(lines[20:25]), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    def run(output, *launch, resume=()):
        # One process accumulates two batches.
        words = (
            f"stages.yaml --corpus corpus.txt --eval held-out.txt --cache cache --config config.json --output {output}"
        )
        words += f" --tokenizer {MODEL} --device-tokens 128 --save-steps 2 --logging-steps 1"
        command = [sys.executable, *launch, SCRIPT, *words.split(), *resume]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr

    run("one")
    run("two", *TORCHRUN)
    for path in ("model", "stage-2/model"):
        for file in (tmp_path / "two" / path).iterdir():
            file.unlink()
        (tmp_path / "two" / path).rmdir()
    run("two", *TORCHRUN, resume=["--resume"])
    names = ("loss", "accuracy", "eval_loss", "eval_accuracy")
    for stage in ("stage-1", "stage-2"):
        one, two = (json.loads((tmp_path / name / stage / "log.json").read_text()) for name in ("one", "two"))
        ours, theirs = ([entry[n] for entry in log for n in names if n in entry] for log in (one, two))
        assert len(ours) > 8 and ours == pytest.approx(theirs, rel=0, abs=1e-4)
        ours, theirs = (load_file(tmp_path / n / stage / "model" / "model.safetensors") for n in ("one", "two"))
        for name, weight in ours.items():  # Muon computes in bfloat16
            torch.testing.assert_close(weight, theirs[name], rtol=0, atol=2e-4, msg=name)
