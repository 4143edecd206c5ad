"""Scripts of examples/, run in this process, which saves the imports."""

import runpy
import sys


def run_script(script, arguments, monkeypatch, capfd) -> tuple[int, str, str]:
    """Its exit code, stdout and the last line of stderr, on which there was no traceback."""
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
    code = 0
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        code = stop.code or 0
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    return code, out, err.strip().rpartition("\n")[2]
