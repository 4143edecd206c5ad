"""The README's commands and code, run in order in an empty folder beside the repository's, print what it says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import hub_server
import pytest
from paths import REPOSITORY

from modeling_roformer.conversion.convert import convert
from modeling_roformer.conversion.export_tf import export_tf

hub = hub_server.hub  # the fixture
BERT4KERAS = os.environ.get("ROFORMER_BERT4KERAS_PYTHON")

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(?P<language>\w+)\n(?P<code>.*?)```(?:\n```text\n(?P<output>.*?)```)?", re.DOTALL)
BLOCKS = [match.groupdict() for match in BLOCK.finditer(README)]
# What differs from run to run and from machine to machine.
CHANGES = {
    r"[│┃┌┐└┘├┤┬┴┼─━┏┓┗┛┡┩╇┳┻\s]+": " ",  # where lines of tables break, too
    r"\d{4}-\d\d-\d\d": "DATE",
    r"seconds [\d.]+": "seconds N",
    r"\d+\.\d s\b": "N s",
    r"[\d.,]+ (bytes|kB|MB)": r"N \1",
    r"\b[0-9a-f]{8,64}\b": "SUM",
    r"http://127\.0\.0\.1:\d+": "https://huggingface.co",
}


def steady(text: str) -> str:
    for pattern, replacement in CHANGES.items():
        text = re.sub(pattern, replacement, text)
    return text.strip()


def assert_printed(expected: str, printed: str, code: str) -> None:
    """A line of three dots stands for any number of lines."""
    at = 0
    for part in re.split(r"^\.\.\.$", expected, flags=re.MULTILINE):
        at = steady(printed).find(steady(part), at)
        assert at >= 0, f"{code} prints\n{printed}"


def run(arguments, folder, environment) -> subprocess.CompletedProcess:
    """A process in the folder, on a terminal of the usual width."""
    environment = {**environment, "PYTHONPATH": str(REPOSITORY / "tests"), "PYTHONUTF8": "1", "COLUMNS": "80"}
    return subprocess.run(arguments, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)


def test_commands_and_code_print_what_the_readme_says(hub, tmp_path):
    hub.tokens[hub.token] = "you"
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    commands = [block for block in BLOCKS if block["language"] == "bash" and block["code"].startswith("roformer ")]
    assert len(commands) > 5
    for block in commands:
        printed = ""
        for line in block["code"].splitlines():
            command, *arguments = shlex.split(line)
            done = run([Path(sys.executable).with_name(command), *arguments], tmp_path, hub.environment)
            assert done.returncode == ("roformer: " in (block["output"] or "")), f"{line}\n{done.stderr}"
            printed += done.stdout + "".join(part for part in done.stderr.splitlines(True) if "roformer: " in part)
        assert_printed(block["output"] or "", printed, block["code"])

    python = [block for block in BLOCKS if block["language"] == "python"]
    assert all(block["output"] for block in python)
    mark = "-- end of block --"
    script = "".join(f"{block['code']}\nprint({mark!r})\n" for block in python)
    done = run([sys.executable, "-c", script], tmp_path, {**os.environ})
    assert done.returncode == 0, done.stderr
    for block, output in zip(python, done.stdout.split(mark + "\n"), strict=False):
        # Trainer prints its losses as well; what the README shows comes last.
        assert output.endswith(block["output"]), f"{block['code']} prints\n{output}"


@pytest.mark.live
@pytest.mark.skipif(not BERT4KERAS, reason="name a Python that has bert4keras in ROFORMER_BERT4KERAS_PYTHON")
def test_bert4keras_prints_what_the_readme_says(tmp_path):
    (code,) = (block for block in BLOCKS if block["language"] == "py")
    convert(REPOSITORY / "examples" / "roformer-mini-zh", tmp_path / "model")
    export_tf(tmp_path / "model", tmp_path / "legacy")
    keras = {**os.environ, "TF_KERAS": "1", "TF_USE_LEGACY_KERAS": "1"}
    done = run([BERT4KERAS, "-c", code["code"]], tmp_path / "legacy", keras)
    assert done.stdout.endswith(code["output"]), done.stderr


def test_the_two_commands_are_targets_of_the_makefile():
    makefile = (REPOSITORY / "Makefile").read_text()
    for block in BLOCKS:
        for command in re.findall(r"^make (\w[\w-]*)", block["code"], re.MULTILINE):
            assert re.search(rf"^{command}:", makefile, re.MULTILINE), command


def test_scripts_have_the_options_that_the_readme_gives_them():
    scripts = re.findall(r"`python (benchmarks/\w+\.py)([^`]*)`", README)
    assert len(scripts) > 4
    for script, arguments in scripts:
        source = (REPOSITORY / script).read_text(encoding="utf-8")
        for option in re.findall(r"--[\w-]+", arguments):
            assert f'"{option}"' in source, f"{script} {option}"


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", README):
        assert (REPOSITORY / target).exists(), target


def test_every_command_is_shown():
    from modeling_roformer.cli import app

    names = {command.name or command.callback.__name__.replace("_", "-") for command in app.registered_commands}
    assert len(names) > 6
    for name in names:
        assert f"\nroformer {name} " in README, name
