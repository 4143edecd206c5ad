"""`--help` of the command line, its completion in shells, and `help` of the package and of its models."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from importlib import import_module

import pytest
import typer.main
from helpers import command_line
from helpers.paths import REPOSITORY

import modeling_roformer
from modeling_roformer import RoFormerModel
from modeling_roformer.cli.commands import app

COMMAND = command_line.ROFORMER
HEADS = [name for name in modeling_roformer.__all__ if "For" in name.removeprefix("RoFormer") and "Auto" not in name]
HEADS.remove("RoFormerForConditionalGeneration")  # reads two texts: see test_seq2seq.py


def paths(group, before=()):
    """Yield the words of each command, and of each group of them."""
    yield before
    for name, command in getattr(group, "commands", {}).items():
        yield from paths(command, (*before, name))


@pytest.mark.parametrize(
    "words", [*paths(typer.main.get_command(app))], ids=lambda words: "-".join(words) or "roformer"
)
def test_help_shows_each_option(run, words):
    code, out, err = run(*words, "--help")
    assert code == 0 and not err
    rows = {found[1]: found[2] for found in re.finditer(r"^│\s+\*?\s*(--[\w,-]+)(.*)│$", out, re.MULTILINE)}
    assert "--help" in rows
    assert all(re.fullmatch(r"\s+(\S+\s+)?[A-Z`\w].*", row) for row in rows.values())


def test_help_names_the_extras_in_the_order_of_a_users_way(run):
    _, out, _ = run("--help")
    rows = re.split(r"^│ (?=[a-z])", out, flags=re.MULTILINE)[1:]
    found = {row.split()[0]: re.findall(r"Extra:\s+([\w-]+)", row.replace("│", "")) for row in rows}
    assert list(found)[:3] == ["pull", "info", "convert"] and list(found)[-1] == "push"
    expected = {"predict": "predict", "embed": "embed", "rank": "embed", "page": "page", "export-onnx": "export"}
    expected["export-nomic-bert"] = "export"
    assert {name: extras[0] for name, extras in found.items() if extras} == expected


def test_the_documentation_lists_the_extras_of_users():
    settings = ConfigParser()
    settings.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    page = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall("`([\\w-]+)`", row)}
    assert set(settings["options.extras_require"]) == listed


@pytest.mark.slow
def test_the_package_started_as_a_module_is_the_command():
    command = [sys.executable, "-m", "modeling_roformer", "card", "--help"]
    assert "Usage: roformer card " in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(("words", "found"), [("bun", "bundle"), ("pull --local", "--local-files-only")])
def test_bash_completes_after_the_installation(tmp_path, words, found):
    script = f"""
    "{COMMAND}" --install-completion || exit 1
    source ~/.bashrc
    COMP_WORDS=(roformer {words}) COMP_CWORD={len(words.split())}
    _roformer_completion "{COMMAND}"
    echo "completed: ${{COMPREPLY[@]}}"
    """
    environment = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"completed: {found}\n")


def test_help_of_the_package_names_its_packages_for_users():
    lines = re.findall(r"^ +modeling_roformer\.(\w+) +\S", modeling_roformer.__doc__, re.MULTILINE)
    assert sorted(lines) == ["conversion", "hub", "serving", "training"]
    assert all(import_module(f"modeling_roformer.{name}").__doc__ for name in lines)


def entries(text):
    """Return the arguments that a docstring describes: name -> description."""
    section = re.search(r"^Args:\n(.*?)\n\n", inspect.cleandoc(text), re.DOTALL | re.MULTILINE)[1]
    found = re.findall(r"^ +([\w*, ]+): (.*(?:\n +(?![\w*, ]+: ).*)*)", section, re.MULTILINE)
    return {name.strip(): words for names, words in found for name in names.split(",")}


@pytest.mark.parametrize("head", HEADS)
def test_every_argument_of_a_head_is_described(head):
    """In the head's docstring, or in that of the bare model, to which it refers."""
    forward = getattr(modeling_roformer, head).forward
    own, bare = entries(forward.__doc__), entries(RoFormerModel.forward.__doc__)
    assert "the other arguments of `RoFormerModel.forward`" in own["**kwargs"]
    described = {"kwargs": own["**kwargs"], **bare, **own}
    for name in set(inspect.signature(forward).parameters) - {"self"}:
        assert len(described[name].split()) >= 2, name
    assert "output_hidden_states" in described
    assert ("num_items_in_batch" in own) == getattr(modeling_roformer.__dict__[head], "accepts_loss_kwargs", True)
    assert "Returns:\n" in forward.__doc__


def test_the_bare_model_describes_every_argument():
    parameters = inspect.signature(RoFormerModel.forward).parameters
    assert set(parameters) - {"self", "kwargs"} <= set(entries(RoFormerModel.forward.__doc__))
