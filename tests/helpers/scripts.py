"""Runner for the scripts of examples/ in this process, which saves importing everything again."""

import runpy
import sys


def run_script(script, arguments, monkeypatch, capfd) -> tuple[int, str, str]:
    """Run a script. Return its exit code, stdout and the last line of stderr, and assert that there is no traceback."""
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
    code = 0
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        code = stop.code or 0
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return code, out, err.strip().rpartition("\n")[2]
