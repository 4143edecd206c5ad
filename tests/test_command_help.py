"""`--help` of the command line, its name, and the completion of shells."""

import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser

import pytest
import typer.main
from helpers import command_line
from helpers.paths import REPOSITORY

from modeling_roformer.cli.commands import app

COMMAND = command_line.ROFORMER


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


def test_help_names_what_the_commands_do(run):
    _, out, _ = run("--help")
    summary = out.split("╭")[0].lower()
    for verb in ("convert", "inspect", "publish", "export", "vocabular", "vectors"):
        assert verb in summary
    assert "--install-completion" in out and "--show-completion" in out


def test_help_names_the_extras_in_the_order_of_a_users_way(run):
    _, out, _ = run("--help")
    rows = re.split(r"^│ (?=[a-z])", out, flags=re.MULTILINE)[1:]
    found = {row.split()[0]: re.findall(r"Extra:\s+([\w-]+)", row.replace("│", "")) for row in rows}
    assert list(found)[:3] == ["pull", "info", "convert"] and list(found)[-1] == "push"
    expected = {"embed": "embed", "rank": "embed", "page": "page", "export-onnx": "export"}
    assert {name: extras[0] for name, extras in found.items() if extras} == expected


def test_the_documentation_lists_the_extras_of_users():
    settings = ConfigParser()
    settings.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    page = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall("`([\\w-]+)`", row)}
    assert set(settings["options.extras_require"]) - listed == {"browser", "dist", "site", "lint"}


@pytest.mark.slow
def test_the_package_is_the_command_too():
    """Started as a module, it has the same name."""
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


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_completion_is_shown_without_writing_anything(tmp_path):
    script = f'"{COMMAND}" --show-completion; true'  # two commands, so that bash stays the parent
    environment = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=900)
    assert "complete -o default -F _roformer_completion roformer" in done.stdout and not done.stderr
    assert not os.listdir(tmp_path)
