"""Training on more than one process: what one process learns, with DDP and FSDP, stopped and continued.

Both are compared with the same run of this process. torchrun starts two others once, for all that is asked of them.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from accelerate.commands.launch import launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM
from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.pretraining.stage_trainer import shard

pytestmark = pytest.mark.slow

SCRIPT = REPOSITORY / "examples" / "pretrain_mlm.py"
TEXT = REPOSITORY / "examples" / "long_document.txt"
MODEL = REPOSITORY / "examples" / "roformer-mini-zh"
STAGES = """
  - {length: 32, batch_size: 4, steps: 3, learning_rate: 1e-3}
  - {length: 64, batch_size: 4, steps: 4, learning_rate: 1e-3, masked: [0.3, 0.15]}
"""
MUON = "  - {length: 32, batch_size: 4, steps: 3, learning_rate: 1e-3, optimizer: muon}\n"
CONFIG = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
FSDP = ["--use_fsdp", "--fsdp_version", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of the inputs; `one` in it is the run of one process."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "fsdp.yaml").write_text(f"stages:{STAGES}", encoding="utf-8")
    (folder / "ddp.yaml").write_text(f"stages:{STAGES}{MUON}", encoding="utf-8")
    lines = TEXT.read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "corpus.txt").write_text("".join(lines[:20]), encoding="utf-8")
    (folder / "held-out.txt").write_text("".join(lines[20:25]), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(SCRIPT), *arguments(folder, "ddp", "one")])
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return folder


def arguments(folder, stages, output):
    """Return arguments of pretrain_mlm.py, with `--device-tokens` such that one process accumulates two batches."""
    places = {"--corpus": "corpus.txt", "--eval": "held-out.txt", "--cache": "cache", "--config": "config.json"}
    options = {name: folder / place for name, place in [*places.items(), ("--output", output)]}
    options |= {"--tokenizer": MODEL, "--device-tokens": 128, "--save-steps": 2, "--logging-steps": 1}
    return [str(folder / f"{stages}.yaml"), *(str(word) for option in options.items() for word in option)]


def fsdp_environment():
    """Return the environment that `accelerate launch` with `FSDP` sets for its processes."""
    launched = launch_command_parser().parse_args([*FSDP, "--num_processes", "2", "--num_machines", "1", str(SCRIPT)])
    launched.mixed_precision, launched.dynamo_backend = "no", "no"
    return {name: value for name, value in prepare_multi_gpu_env(launched).items() if "FSDP" in name}


@pytest.fixture(scope="module")
def seen(folder):
    """Return the observations of both processes; `ddp` and `fsdp` in the folder are their runs."""
    plan = {name: arguments(folder, name, name) for name in ("ddp", "fsdp")} | {"environment": fsdp_environment()}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, REPOSITORY / "tests" / "helpers" / "two_processes.py", folder],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=REPOSITORY, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]


def logged(output, stage):
    """Return the logged losses and accuracies, in order."""
    names = ("loss", "accuracy", "eval_loss", "eval_accuracy")
    entries = json.loads((output / f"stage-{stage}" / "log.json").read_text(encoding="utf-8"))
    return [(entry["step"], name, entry[name]) for entry in entries for name in names if name in entry]


def assert_same(output, other, stage, atol=1e-5):
    ours, theirs = logged(output, stage), logged(other, stage)
    assert [entry[:2] for entry in ours] == [entry[:2] for entry in theirs] and len(ours) > 8
    assert [entry[2] for entry in ours] == pytest.approx([entry[2] for entry in theirs], rel=0, abs=1e-5)
    place = f"stage-{stage}/model/model.safetensors"
    weights, others = load_file(output / place), load_file(other / place)
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, others[name], rtol=0, atol=atol, msg=name)


def test_two_processes_learn_what_one_does(folder, seen):
    """The second is asked to end in the middle; both do, after the same step, and resume from the same checkpoint."""
    for process in seen:
        assert process["ddp"] == {"codes": [128 + signal.SIGTERM, 0, 1], "are_sharded": [False], "kinds": ["MULTI_CPU"]}
    for stage in 1, 2:
        assert_same(folder / "ddp", folder / "one", stage)
    assert_same(folder / "ddp", folder / "one", 3, atol=2e-4)  # Muon computes in bfloat16
    assert (folder / "ddp" / "stage-2" / "checkpoint-3.damaged").is_dir()
    assert (folder / "ddp" / "curves.png").exists()


def test_sharded_weights_learn_what_whole_ones_do(folder, seen):
    for process in seen:
        assert process["fsdp"] == {"codes": [128 + signal.SIGTERM, 0, 1], "are_sharded": [True], "kinds": ["FSDP"]}
    for stage in 1, 2:
        assert_same(folder / "fsdp", folder / "one", stage)
    assert (folder / "fsdp" / "stage-2" / "checkpoint-3.damaged").is_dir()
    model, loading = AutoModelForMaskedLM.from_pretrained(folder / "fsdp" / "model", output_loading_info=True)
    assert not any(loading.values()) and model.config.architectures == ["RoFormerForMaskedLM"]


def test_what_sharding_cannot_do_is_refused(folder, monkeypatch, capsys):
    model = RoFormerForMaskedLM(RoFormerConfig(vocab_size=90, **CONFIG))
    plugin = SimpleNamespace(fsdp_version=1)
    with refused(TrainingError, "accelerate launch", "--fsdp_version 2"):
        shard(model, SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)))
    for name, value in fsdp_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments(folder, "ddp", "refused")])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert stopped.value.code == 1 and not (folder / "refused").exists()
    assert_states(capsys.readouterr().err.splitlines()[-1], "muon", "FSDP")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs, for accelerate's FSDP as it is")
def test_sharded_on_gpus(folder):
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", *FSDP]
    done = subprocess.run(
        [*launch, SCRIPT, *arguments(folder, "fsdp", "gpus")], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    for stage in 1, 2:
        assert_same(folder / "gpus", folder / "one", stage, atol=1e-3)


def test_fine_tuning_in_several_processes_is_refused(tmp_path):
    """The scripts of fine-tuning train in one process."""
    script = REPOSITORY / "examples" / "finetune_classification.py"
    texts = ["--train", REPOSITORY / "examples" / "reviews.csv", "--output", tmp_path / "classifier"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run([*launch, script, MODEL, *texts], capture_output=True, text=True, timeout=900)
    assert ended.returncode != 0
    assert "finetune_classification: this script trains in one process: start it with python" in ended.stderr
    assert not (tmp_path / "classifier").exists()
