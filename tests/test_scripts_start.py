"""Scripts of `examples/` check their arguments before they import torch, which takes seconds."""

import os
import subprocess
import sys

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY

MINI = str(REPOSITORY / "examples" / "roformer-mini-zh")
VOCABULARY = f"{MINI}/vocab.txt"
# Arguments of each script, with the path that is not there.
ARGUMENTS = {
    "paper/char_lm": ["MISSING", "--output", "runs"],
    "paper/position_laboratory/compare": ["MISSING", "--output", "runs"],
    "finetune_triplet": ["MISSING", "--models", MINI, "--output", "runs"],
    "split_questions": ["MISSING", "--output", "out"],
    "paper/statute_triplets": ["MISSING", MINI, "--output", "out"],
    "train_retriever": [MINI, "--train", "MISSING", "--output", "runs"],
    "translate": ["--train", "MISSING", "--output", "runs"],
    "paper/wikitext": ["MISSING", "--output", "out"],
}
WITH_TORCH = sorted(ARGUMENTS.keys() - {"split_questions", "paper/wikitext"})


@pytest.fixture
def start(tmp_path, default_signals):
    """Return a function that starts a script with a torch that is `stub`. It returns the exit code and stderr."""

    def start(script: str, arguments: list[str], stub: str) -> tuple[int, str]:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(stub)
        ran = subprocess.run(
            [sys.executable, REPOSITORY / "examples" / f"{script}.py", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
        )
        return ran.returncode, ran.stderr

    return start


@pytest.mark.parametrize("script", ARGUMENTS)
def test_a_path_that_is_not_there(start, tmp_path, script):
    missing = str(tmp_path / "missing.jsonl")
    arguments = [missing if word == "MISSING" else word for word in ARGUMENTS[script]]
    code, err = start(script, arguments, "import os\nos._exit(77)")
    assert code not in (0, 77), err
    assert err.count("\n") == 1
    assert_states(err, missing)


@pytest.mark.parametrize("script", [*WITH_TORCH, "demo"])
def test_ctrl_c_while_torch_is_imported(start, tmp_path, script):
    (tmp_path / "there.jsonl").write_text("{}\n")
    (tmp_path / "there.yaml").write_text("- length: 8\n")
    arguments = [str(tmp_path / "there.jsonl") if word == "MISSING" else word for word in ARGUMENTS.get(script, [])]
    code, err = start(script, arguments, "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)")
    assert code == 130 and err.count("\n") == 1, err
    assert_states(err, "interrupted")
