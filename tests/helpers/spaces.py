"""Folder of a Space, made by the commands of its README."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from helpers.paths import REPOSITORY


def make_space(folder: Path) -> Path:
    """Run the commands offline in a copy of the repository in `folder`, except the one that publishes the Space."""
    clone = folder / "clone"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "work", "tests", "benchmarks")
    shutil.copytree(REPOSITORY, clone, ignore=ignored)
    readme = (clone / "examples" / "space" / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```bash\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    *commands, publish = block.splitlines()
    assert publish.startswith("hf upload NAME/my-space work/my-space ")
    for command in commands:
        program, *arguments = shlex.split(command)
        arguments = [str(next(clone.glob(word)).relative_to(clone)) if "*" in word else word for word in arguments]
        if program == "pip":
            arguments = ["-m", "pip", *arguments, "--quiet", "--no-index", "--no-build-isolation"]
        program = sys.executable if program in ("pip", "python") else program
        environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        done = subprocess.run([program, *arguments], cwd=clone, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    return clone / "work" / "my-space"
