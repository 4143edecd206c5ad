"""Runner for the scripts of examples/ in this process, which saves importing everything again."""

import runpy
import sys
from logging import getLogger

import pytest
from helpers.paths import REPOSITORY


def run_script(script, arguments, monkeypatch, capfd) -> tuple[int, str, str]:
    """Run a script. Return its exit code, stdout and the last line of stderr, and assert that there is no traceback.

    The level of transformers' messages, which some scripts set, is restored: Trainer prints its log at a higher one.
    """
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
    code, logger = 0, getLogger("transformers")
    level = logger.level
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        logger.setLevel(level)
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    err = err.replace("\x1b[A", "\n").strip()  # that moves up from a progress bar
    return code, out, err.rpartition("\n")[2]


@pytest.fixture
def run_here(monkeypatch, capfd):
    """Return a function that runs examples/`script` in a folder, as `script_process.run` does in another process."""

    def run(script, folder, *arguments) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "160")
        capfd.readouterr()
        return run_script(REPOSITORY / "examples" / script, arguments, monkeypatch, capfd)

    return run
