"""examples/paper/char_lm.py: variants of one start, resuming, and what it refuses."""

import json

import pytest
from helpers.messages import assert_states
from helpers.script_process import kill_at

from modeling_roformer.training import spread

SCRIPT = "paper/char_lm.py"
SMALL = ["--layers", 1, "--hidden-size", 8, "--heads", 2, "--features", 4, "--length", 8]
SMALL += ["--batch-size", 4, "--steps", 4, "--eval-steps", 1, "--learning-rate", 0.1]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text("明月几时有，把酒问青天。\n" * 40, encoding="utf-8")
    return tmp_path


def arguments(output, *more):
    return ["text.txt", *SMALL, "--bf16", "--output", output, *more]


def results(folder, seed):
    paths = (folder / f"seed-{seed}").glob("*/results.json")
    return {path.parent.name: json.loads(path.read_text(), parse_constant=pytest.fail) for path in paths}


@pytest.mark.slow
def test_processes_share_a_folder_and_a_killed_run_goes_on(folder, run_here):
    kill_at(SCRIPT, folder, "runs/seed-0/after/checkpoints/checkpoint-*/trainer_state.json", *arguments("runs"))
    finished = results(folder / "runs", 0)
    assert {*finished} == {"none", "learned"}
    code, _, err = run_here(SCRIPT, folder, *arguments("runs", "--variants", "none", "--seeds", 1))
    assert code == 0, err
    code, out, err = run_here(SCRIPT, folder, *arguments("runs", "--seeds", 0, 1, "--resume"))
    assert code == 0, err
    both = [results(folder / "runs", seed) for seed in (0, 1)]
    assert len({of["validation_loss"] for of in both[0].values()}) == len(both[1]) == 5
    assert both[0]["none"] == finished["none"] and (folder / "runs" / "curves.png").exists()
    for name, title in {"none": "none", "both": "learned, RoPE before"}.items():
        bits, losses = ([of[name][value] for of in both] for value in ("bits_per_character", "validation_loss"))
        assert_states(out, title, spread(bits, ".3f"), spread(losses, ".4f"))
    code, _, err = run_here(SCRIPT, folder, *arguments("whole", "--variants", "after"))
    assert code == 0, err
    assert results(folder / "whole", 0)["after"]["bits_per_character"] == pytest.approx(
        both[0]["after"]["bits_per_character"], abs=1e-6
    )
