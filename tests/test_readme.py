"""The README's code, run in order in a folder where the first command has been run, prints what it says."""

import os
import re
import subprocess
import sys

import pytest
from paths import REPOSITORY

BLOCK = re.compile(r"```(?P<language>\w+)\n(?P<code>.*?)```(?:\n```text\n(?P<output>.*?)```)?", re.DOTALL)
BLOCKS = [match.groupdict() for match in BLOCK.finditer((REPOSITORY / "README.md").read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("readme")
    (path / "examples").symlink_to(REPOSITORY / "examples")
    return path


def run(arguments, folder):
    """What a command prints on stdout, or with a failure what it says."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "tests"), "PYTHONUTF8": "1"}
    result = subprocess.run(arguments, capture_output=True, text=True, cwd=folder, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_python_prints_what_the_readme_says(folder):
    commands = [line for block in BLOCKS if block["language"] == "bash" for line in block["code"].splitlines()]
    (convert,) = (line for line in commands if line.startswith("roformer convert"))
    table = run([sys.executable, "-m", "modeling_roformer.cli", *convert.split()[1:]], folder)
    assert "word-level: 6,801 words among 12,000 entries" in table

    python = [block for block in BLOCKS if block["language"] == "python"]
    assert all(block["output"] for block in python)
    mark = "-- end of block --"
    script = "".join(f"{block['code']}\nprint({mark!r})\n" for block in python)
    printed = run([sys.executable, "-c", script], folder).split(mark + "\n")
    for block, output in zip(python, printed, strict=False):
        # Trainer prints its losses as well; what the README shows comes last.
        assert output.endswith(block["output"]), block["code"]


def test_the_two_commands_are_targets_of_the_makefile():
    makefile = (REPOSITORY / "Makefile").read_text()
    for block in BLOCKS:
        for command in re.findall(r"^make (\w[\w-]*)", block["code"], re.MULTILINE):
            assert re.search(rf"^{command}:", makefile, re.MULTILINE), command


def test_links_lead_somewhere():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", readme):
        assert (REPOSITORY / target).exists(), target
