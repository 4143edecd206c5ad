"""examples/paper/compare_position_embeddings.py: equal weights, batches and masks, and a resumed comparison."""

import json
import os
import re
import statistics

import pytest
import torch
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from transformers import AutoModelForMaskedLM

from modeling_roformer.training.pretraining.stage_trainer import StageTrainer

SCRIPT = REPOSITORY / "examples" / "paper" / "compare_position_embeddings.py"
VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
TEXTS = ["明月旋转，明月几时有。把酒问青天。", "不知天上宫阙，今夕是何年。", "没有句号的一行"] * 3
CONFIG = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 8,  # fewer than a text has tokens
}
TABLE = "roformer.embeddings.position_embeddings.weight"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "stages.yaml").write_text("stages: [{length: 16, batch_size: 4, steps: 4, learning_rate: 1e-3}]")
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""
    # The picture of each run, which takes longer than the run.
    monkeypatch.setattr("modeling_roformer.training.pretraining.pretrain.draw_curves", lambda *_: None)

    def run(*arguments):
        words = ["stages.yaml", "--corpus", "corpus.txt", "--eval", "corpus.txt", "--tokenizer", VOCAB]
        words += ["--config", "config.json"]
        words += ["--output", "runs", "--logging-steps", "1", "--save-steps", "2", "--resume", *arguments]
        return run_script(SCRIPT, words, monkeypatch, capfd)

    return run


@pytest.fixture
def seen(monkeypatch):
    """Record the inputs of each run, by its folder: batches, and the weights before the first."""
    seen = {}
    training_step = StageTrainer.training_step

    def patched(self, model, inputs, *rest):
        encoding = self.args.output_dir.split(os.sep)[-2]
        if encoding not in seen:
            seen[encoding] = [], {name: value.clone() for name, value in model.state_dict().items()}
        seen[encoding][0].append({name: inputs[name].clone() for name in ("input_ids", "labels")})
        return training_step(self, model, inputs, *rest)

    monkeypatch.setattr(StageTrainer, "training_step", patched)
    return seen


def test_runs_differ_in_positions_alone(run, seen, folder):
    encodings = ["rotary", "learned", "none"]
    code, out, err = run("--encodings", *encodings)
    assert code == 0, err
    assert list(seen) == encodings
    batches, weights = seen["rotary"]
    assert len(batches) == 4 and any(not torch.equal(batches[0]["input_ids"], b["input_ids"]) for b in batches[1:])
    for encoding in encodings[1:]:
        others, start = seen[encoding]
        for batch, other in zip(batches, others, strict=True):
            assert torch.equal(batch["input_ids"], other["input_ids"]) and torch.equal(batch["labels"], other["labels"])
        assert start.keys() - weights.keys() == ({TABLE} if encoding == "learned" else set())
        assert all(torch.equal(start[name], value) for name, value in weights.items())
    trained = {
        encoding: AutoModelForMaskedLM.from_pretrained(f"runs/seed-0/{encoding}/model") for encoding in encodings
    }
    for encoding, model in trained.items():
        assert model.config.position_encoding == encoding and model.config.max_position_embeddings == 16
    rotary, none = (trained[name].state_dict() for name in ("rotary", "none"))
    assert any(not torch.equal(rotary[name], none[name]) for name in none)

    assert (folder / "runs" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert_states(out, "final held-out loss", "runs/curves.png")
    for encoding in encodings:
        (log,) = (folder / "runs" / "seed-0" / encoding).glob("stage-1/log.json")
        last = [entry for entry in json.loads(log.read_text()) if "eval_loss" in entry][-1]
        pairs = re.findall(rf"│ {encoding} +│ (\w+) +│ 1 +│ (?:never|[\d,]+) +│", out)
        assert pairs == [other for other in encodings if other != encoding]
        row = rf"│ {encoding} +│ 1 +│ 0.001 +│ {last['eval_loss']:.3f} +│ {last['eval_accuracy']:.1%} +│"
        assert re.search(row, out), out


def test_trials_of_another_corpus_choose_no_rate(run, folder):
    arguments = ["--encodings", "rotary", "--learning-rates", "1e-3", "--trial-steps", "2"]
    assert run(*arguments, "--trials-only")[0] == 0
    (folder / "corpus.txt").write_text("\n".join(TEXTS * 2), encoding="utf-8")
    code, _, err = run(*arguments)
    assert code == 1
    assert_states(err, "runs/trials/rotary-0.001-2", "other settings or data", "--output")


def test_processes_share_trials_and_runs(run, seen, folder):
    """Each process has runs of its own; the last command trains nothing, and compares the seeds."""
    rates = ["--learning-rates", "1e-3", "0.1", "--trial-steps", "2"]
    for encoding in ("rotary", "learned"):
        assert run("--encodings", encoding, *rates, "--trials-only")[0] == 0
    assert not (folder / "runs" / "seed-0").exists()
    losses = {}
    for path in (folder / "runs" / "trials").glob("rotary-*/stage-1/log.json"):
        *_, losses[path.parts[-3]] = [
            entry["eval_loss"] for entry in json.loads(path.read_text()) if "eval_loss" in entry
        ]
    best = float(min(losses, key=losses.get).split("-")[1])
    for seed in "01":
        code, out, err = run("--encodings", "rotary", *rates, "--seeds", seed)
        assert code == 0 and f"learning rate {best:g};" in out, err
    run("--encodings", "learned", *rates, "--seeds", "0", "1")
    seen.clear()
    code, out, err = run("--encodings", "rotary", "learned", *rates, "--seeds", "0", "1")
    assert code == 0 and not seen, err
    (row,) = re.findall(r"^│ learned +│ 2 .*", out, re.MULTILINE)
    logs = {
        (encoding, seed): json.loads((folder / f"runs/seed-{seed}/{encoding}/stage-1/log.json").read_text())
        for encoding in ("rotary", "learned")
        for seed in "01"
    }
    final = {run: [entry["eval_loss"] for entry in log if "eval_loss" in entry][-1] for run, log in logs.items()}
    gaps = [final["learned", seed] - final["rotary", seed] for seed in "01"]
    assert_states(row, f"{statistics.mean(gaps):.3f} ± {statistics.stdev(gaps):.3f}")
