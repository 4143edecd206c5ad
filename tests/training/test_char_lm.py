"""examples/paper/char_lm.py: variants of one start, resuming, and what it refuses."""

import json

import pytest
from helpers.messages import assert_states
from helpers.script_process import kill_at, run

SCRIPT = "paper/char_lm.py"
SMALL = ["--layers", 1, "--hidden-size", 8, "--heads", 2, "--features", 4, "--length", 8]
SMALL += ["--batch-size", 4, "--steps", 4, "--eval-steps", 1]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text("明月几时有，把酒问青天。\n" * 40, encoding="utf-8")
    return tmp_path


def arguments(output, *more):
    return ["text.txt", *SMALL, "--new-tokens", 3, "--output", output, *more]


def results(folder):
    return json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)


def test_variants_are_compared_and_a_killed_run_goes_on(folder):
    code, out, err = run(SCRIPT, folder, *arguments("whole"))
    assert code == 0, err
    saved = results(folder / "whole")
    assert list(saved) == ["none", "after", "before"] and len({of["validation_loss"] for of in saved.values()}) > 1
    for name, result in saved.items():
        assert_states(out, name, f"{result['bits_per_character']:.3f}", f"{result['validation_loss']:.4f}")
        assert (folder / "whole" / f"{name}-model" / "model.safetensors").exists()
    assert "明月几时有" in out.partition("continued:")[2]
    assert (folder / "whole" / "losses.png").read_bytes().startswith(b"\x89PNG")
    kill_at(SCRIPT, folder, "parts/after/checkpoint-*/trainer_state.json", *arguments("parts"))
    code, _, err = run(SCRIPT, folder, *arguments("parts", "--resume"))
    assert code == 0, err
    for name, result in results(folder / "parts").items():
        assert result["bits_per_character"] == pytest.approx(saved[name]["bits_per_character"], abs=1e-6)


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        (["--hidden-size", 10], ["hidden_size", 5]),
        (["--features", 3], ["linear_num_features", 3]),
        (["--length", 1000], ["too short", "--length 1,000"]),
    ],
)
def test_what_cannot_be_used_is_named_on_one_line(folder, more, facts):
    code, _, err = run(SCRIPT, folder, *arguments("runs", *more))
    assert code == 1
    assert_states(err, "char_lm: ", *facts)
