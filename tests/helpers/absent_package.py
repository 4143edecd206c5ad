"""A machine on which this package is not installed."""

import os
import subprocess
import sys
from pathlib import Path

# Run before anything else.
ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "modeling_roformer":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run_without_package(script: str, folder: Path, *arguments: object, environment: dict | None = None) -> None:
    """Run a script in a process without this package; without an `environment` also without a network or caches."""
    alone = {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "PATH": os.defpath}
    code = f"{ABSENT}{script}\nassert 'modeling_roformer' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=(environment or alone) | {"OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
