"""`roformer …`: the installed program, and `run`, which runs a command in the tests' process, where the package is
registered.

What a command computes is tested on the installed program too: in tests/cli/test_installed_command.py, and for the page
in tests/serving/test_page_command.py.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROFORMER = Path(sys.executable).with_name("roformer")
# What the program does, once for each line: the arguments of a command.
_PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from roformer_command import main
for line in sys.stdin:
    sys.argv, code = ["roformer", *json.loads(line)], 0
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def run_in_one_process(folder: Path, commands: list[list[str]]) -> list[tuple[int, str, str]]:
    """Run commands one after the other in one process; return exit code, stdout and stderr of each."""
    lines = "\n".join(map(json.dumps, commands))
    program = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(program, input=lines, cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and "Traceback" not in done.stdout, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture
def run(monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command and returns the exit code, stdout and stderr."""
    from modeling_roformer.cli import main  # here, for every test's process imports this file

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["roformer", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")  # so that no line of a table breaks
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code
        return (code or 0, *capfd.readouterr())

    return run
