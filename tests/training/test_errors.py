"""Ends of a training run: Ctrl-C, a full disk, and options that are given twice."""

import argparse
import shlex
import subprocess
import sys

import pytest
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY

from modeling_roformer.training import (
    Distinct,
    Interrupted,
    ScriptParser,
    at_least,
    exit_on_error,
    positive,
    random_seed,
    start_run,
)

# Writes into runs/0, whose disk has room for 300 KB, in the way that is named.
WRITES = """
import sys, torch
from safetensors.torch import save_file
from modeling_roformer.training import exit_on_error, start_run
values = torch.zeros(1_000_000)
with exit_on_error("script"), start_run("runs/0", {}, {}) as run:
    write = {
        "torch": lambda: torch.save(values, run.folder / "optimizer.pt"),
        "safetensors": lambda: save_file({"values": values}, run.folder / "model.safetensors"),
        "bytes": lambda: (run.folder / "texts.txt").write_bytes(bytes(1_000_000)),
        "other": lambda: torch.save(values, "/proc/optimizer.pt"),
    }[sys.argv[1]]
    write()
"""
SMALL = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


@pytest.fixture
def small_disk(tmp_path):
    """Return a function that runs a Python program in a folder, in which `runs` is a disk of 300 KB."""
    (tmp_path / "runs").mkdir()
    mount = "mount -t tmpfs -o size=300k tmpfs runs"
    if subprocess.run([*SMALL, mount], cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("needs Linux that lets a user mount a small disk (unshare)")

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess:
        command = f"{mount} && exec {shlex.join([sys.executable, '-c', program, *arguments])}"
        return subprocess.run([*SMALL, command], cwd=tmp_path, capture_output=True, text=True)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["torch", "safetensors", "bytes", "other"])
def test_a_full_disk_is_named(small_disk, writer):
    done = small_disk(WRITES, writer)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    if writer == "other":  # another failure is not taken for a full disk
        assert "full" not in done.stderr
    else:
        assert_states(done.stderr, "script: ", "runs/0", "full", "--resume")


def test_ctrl_c_in_a_run_shows_the_command_that_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    command = ["examples/train.py", "my model", "--train", "texts.csv"]
    for given in command, [*command, "--resume"]:
        monkeypatch.setattr(sys, "argv", given)
        with pytest.raises(SystemExit) as stop, exit_on_error("train"), start_run(tmp_path / "run", {}, {}, True):
            raise KeyboardInterrupt
        assert stop.value.code == 130
        err = capsys.readouterr().err
        assert err.startswith("train: ") and err.count("\n") == 1
        shown = shlex.split(err[err.index("python ") :])
        assert shown == ["python", *command, "--resume"]
    # Before a run has begun, there is nothing to resume.
    with pytest.raises(SystemExit), exit_on_error("train"):
        raise KeyboardInterrupt
    assert "--resume" not in capsys.readouterr().err
    with pytest.raises(Interrupted), start_run(tmp_path / "other", {}, {}):  # which is a KeyboardInterrupt
        raise KeyboardInterrupt


def test_a_value_that_is_given_twice_counts_once():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], action=Distinct)
    assert parser.parse_args(["--seeds", "3", "0", "3", "00"]).seeds == [3, 0]
    assert parser.parse_args([]).seeds == [0]


@pytest.fixture
def parser():
    parser = ScriptParser("A script.")
    parser.add_argument("--output", required=True)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rate", "-r", type=float)
    parser.add_argument("words", nargs="*")
    return parser


@pytest.mark.parametrize("option", ["--epoch", "--epoch=3", "--outptu"])
def test_an_unknown_option_is_named_even_if_a_required_one_is_missing(parser, capsys, option):
    with pytest.raises(SystemExit) as stop:
        parser.parse_args([option, "3"])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and "--output" not in err.splitlines()[-1]
    assert_states(err, "unknown", option.partition("=")[0])


def test_known_options_are_read(parser, capsys):
    chosen = parser.parse_args(["--output=a b", "--epochs", "-1", "-r1e-3", "--", "-e", "--epoch"])
    assert vars(chosen) == {"output": "a b", "epochs": -1, "rate": 1e-3, "words": ["-e", "--epoch"]}
    with pytest.raises(SystemExit):
        parser.parse_args(["--epochs", "3"])
    assert_states(capsys.readouterr().err, "required", "--output")


PARSING = [
    path
    for folder in ("examples", "benchmarks")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
    if "add_argument(" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("script", PARSING, ids=lambda path: path.stem)
def test_every_script_parses_its_options_by_the_same_parser(script):
    """By reading, since importing all of them takes long."""
    text = script.read_text(encoding="utf-8")
    assert "argparse.ArgumentParser(" not in text and ("ScriptParser(" in text or "make_parser(" in text)


@pytest.mark.parametrize(
    "script",
    [
        "finetune_classification",
        "finetune_questions",
        "finetune_glue",
        "finetune_triplet",
        "translate",
        "train_retriever",
        "paper/char_lm",
        "paper/compare_position_embeddings",
        "paper/position_laboratory/compare",
    ],
)
def test_seeds_of_every_script_count_once(script):
    """By reading, since a script needs data to run."""
    text = (REPOSITORY / "examples" / f"{script}.py").read_text(encoding="utf-8")
    if "add_fine_tuning_options(" in text:  # which adds the option
        text += (REPOSITORY / "training" / "finetuning" / "options.py").read_text(encoding="utf-8")
    assert text.count('"--seeds"') == 1
    assert "Distinct" in text[text.index('"--seeds"') :].partition("help=")[0]


@pytest.mark.parametrize(
    ("script", "option", "value"),
    [
        ("finetune_classification", "--epochs", "0"),
        ("finetune_classification", "--epochs", "nan"),
        ("finetune_classification", "--learning-rate", "inf"),
        ("finetune_glue", "--batch-size", "0"),
        ("finetune_classification", "--seeds", "4294967296"),
        ("pretrain_mlm", "--seed", "-1"),
        ("finetune_triplet", "--epochs", "-1"),
        ("train_retriever", "--learning-rate", "0"),
        ("translate", "--steps", "0"),
        ("pretrain_mlm", "--epochs", "0"),
        ("pretrain_mlm", "--logging-steps", "-1"),
    ],
)
def test_a_number_without_a_meaning_is_refused_before_a_run_begins(tmp_path, script, option, value):
    command = [sys.executable, REPOSITORY / "examples" / f"{script}.py", "--output", "run", option, value]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2 and not (tmp_path / "run").exists()
    assert_states(run.stderr.splitlines()[-1], option, f"{value};")


def test_numbers_of_options():
    assert at_least(0)("0") == 0 and at_least(1)("12") == 12
    assert positive("1e-4") == 1e-4 and random_seed("0") == 0 and random_seed("2147483647") == 2**31 - 1
    refusing = {at_least(1): ["0"], at_least(0): ["-1"], positive: ["0", "nan", "inf"], random_seed: ["-1", f"{2**31}"]}
    for read, text in ((read, text) for read, texts in refusing.items() for text in texts):
        with refused(argparse.ArgumentTypeError, text):
            read(text)
