"""examples/paper/char_lm.py: a variant that fails is named, and the others are compared."""

import json
import re
import shutil

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from transformers import Trainer

SCRIPT = REPOSITORY / "examples" / "paper" / "char_lm.py"


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("明月几时有，把酒问青天。\n" * 40, encoding="utf-8")
    small = ["--layers", 1, "--hidden-size", 8, "--heads", 2, "--features", 4, "--length", 8, "--batch-size", 4]
    small += ["--steps", 4, "--eval-steps", 1, "--new-tokens", 3]

    def run(*arguments):
        return run_script(SCRIPT, ["text.txt", *small, "--output", "runs", *arguments], monkeypatch, capfd)

    return run


def test_a_failed_run_is_named_and_the_others_compared(run, tmp_path, failing, monkeypatch):
    failing("before")
    code, out, error = run()
    assert code == 0, error
    assert re.search(r"│ before +│ failed", out) and re.search(r"│ after +│ \d", out)
    assert_states(out, "failed: before", "nan at step 2")
    results = json.loads((tmp_path / "runs" / "results.json").read_text(), parse_constant=pytest.fail)["results"]
    assert "nan at step 2" in results["before"]["failed"] and "failed" not in results["after"]
    assert {path.name for path in (tmp_path / "runs").glob("*/model")} == {"model"} and len(results) == 3
    assert not (tmp_path / "runs" / "before" / "model").exists()
    for name in "none", "after":
        assert {path.name for path in (tmp_path / "runs" / name).glob("checkpoint-*")} == {
            "checkpoint-3",
            "checkpoint-4",
        }
    monkeypatch.setattr(Trainer, "train", lambda *_, **__: pytest.fail("trained again"))
    code, out, error = run("--variants", "before")
    assert code == 1 and error.startswith("char_lm: ") and "before" in out


def test_a_finished_run_is_not_measured_again(run, tmp_path, monkeypatch):
    """Nor does it need its checkpoints. By default, a text on one line is continued after its 100 first characters."""
    (tmp_path / "text.txt").write_text("\n" + "明月几时有，把酒问青天。" * 40, encoding="utf-8")
    code, out, error = run("--variants", "after", "--eval-steps", 9)
    assert code == 0, error
    continued = out.partition("continued:\n")[2].partition("\n\n")[0].replace("\n", "")
    assert continued.startswith("明月几时有") and len(continued) == 100 + 3
    for checkpoint in tmp_path.glob("runs/after/checkpoint-*"):
        shutil.rmtree(checkpoint)
    monkeypatch.setattr(Trainer, "__init__", lambda *_, **__: pytest.fail("measured again"))
    code, again, error = run("--variants", "after", "--eval-steps", 9)
    assert code == 0, error
    table = out.index("┏")
    assert again[again.index("┏") :] == out[table:]  # and the same text, from the model that was saved


def test_a_rate_of_which_nothing_remains(run, tmp_path):
    code, out, error = run("--learning-rate", "1e25")
    assert code == 1 and out.count("│ failed") == 3
    assert_states(error, "3 runs")
    json.loads((tmp_path / "runs" / "results.json").read_text(), parse_constant=pytest.fail)
    for rate in "nan", "inf", "0", "-1e-3":
        code, _, error = run(f"--learning-rate={rate}")
        assert code == 2
        assert_states(error, "--learning-rate", rate)


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (["--hidden-size", 10], 1, ["hidden_size", 5]),
        (["--features", 3], 1, ["linear_num_features", 3]),
        (["--device-batch", 3], 2, ["--batch-size 4", "--device-batch 3"]),
    ],
)
def test_a_refused_command_leaves_nothing_behind(run, tmp_path, arguments, code, facts):
    found, _, error = run(*arguments)
    assert found == code and not (tmp_path / "runs").exists()
    assert_states(error, *facts)


@pytest.mark.parametrize(
    ("content", "fact"), [(b"\xff\xfea\0", "UTF-8"), (b"caf\xe9\n", "UTF-8"), (b"", "empty"), (b" \n" * 200, "empty")]
)
def test_a_text_that_cannot_be_used_is_named(run, tmp_path, content, fact):
    (tmp_path / "text.txt").write_bytes(content)
    code, _, error = run()
    assert code == 1 and not (tmp_path / "runs").exists()
    assert_states(error, "text.txt", fact)


@pytest.mark.parametrize(
    "misshapen",
    [
        {"log": None},
        {"log": [{"step": 1, "eval_loss": "2.2"}]},
        {"log": [{"loss": 2.2}]},
        {"bits_per_character": "3.2"},
        {"validation_loss": None},
        {"failed": 1},
    ],
)
def test_misshapen_results_are_refused(run, tmp_path, misshapen):
    done = {"bits_per_character": 3.2, "validation_loss": 2.2, "log": [{"step": 1, "eval_loss": 2.2}, {"epoch": 1}]}
    (tmp_path / "runs").mkdir()
    results = {"none": {"failed": "the loss is nan"}, "after": done}
    for second, fact in ((done, "layers"), (done | misshapen, "damaged")):
        saved = {"settings": {"layers": 2}, "results": results | {"after": second}}
        (tmp_path / "runs" / "results.json").write_text(json.dumps(saved))
        code, out, error = run()
        assert code == 1 and not out
        assert_states(error, "runs/results.json", fact)
