"""`roformer …`: the installed program, and `run`, which runs a command in the tests' process, where the package is
registered.

What a command computes is tested on the installed program too: in tests/test_installed_command.py, and for the page in
tests/serving/test_page_command.py. A module gets the fixture by `run = command_line.run`.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from modeling_roformer.cli import main

ROFORMER = Path(sys.executable).with_name("roformer")


@pytest.fixture
def run(monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command and returns the exit code, stdout and stderr."""

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
