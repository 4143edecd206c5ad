"""Runner for the scripts of examples/ in a process of their own, from a folder outside the clone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers.paths import REPOSITORY

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "160"}


def start(script: str, folder: Path, *arguments: object) -> subprocess.Popen:
    """Start examples/`script` in a folder."""
    words = [sys.executable, str(REPOSITORY / "examples" / script), *map(str, arguments)]
    environment = os.environ | ENVIRONMENT | {"HF_DATASETS_CACHE": str(folder / ".datasets")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, cwd=folder, env=environment, **pipes)


def run(script: str, folder: Path, *arguments: object) -> tuple[int, str, str]:
    """Run a script. Return its exit code, stdout and the last line of stderr; assert that there is no traceback."""
    process = start(script, folder, *arguments)
    out, err = process.communicate()
    assert "Traceback" not in err, err
    err = err.replace("\x1b[A", "\n").strip()  # that moves up from a progress bar
    return process.returncode, out, err.splitlines()[-1] if err else ""


def kill_at(script: str, folder: Path, pattern: str, *arguments: object) -> None:
    """Start a script, and kill it as soon as a file of this pattern is in the folder."""
    process = start(script, folder, *arguments)
    while process.poll() is None and not any(folder.glob(pattern)):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
