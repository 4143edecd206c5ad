"""`make test` prints a failure when it happens, not after all other tests."""

import os
import shutil
import subprocess
import sys

import pytest
from helpers.paths import REPOSITORY


@pytest.mark.parametrize("options", [[], ["-n", "2"]])
def test_a_failure_is_printed_before_the_last_test_ends(tmp_path, options):
    """The last test waits until the failure of the first is in the output, and ends by itself only after minutes."""
    shutil.copy(REPOSITORY / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_two.py").write_text(
        "import time\n\n\ndef test_first():\n    assert 'the ' + 'reason' == ''\n\n\n"
        "def test_second():\n    for _ in range(6000):\n        if 'the reason' in open('output').read():\n"
        "            return\n        time.sleep(0.1)\n    raise TimeoutError\n"
    )
    command = [sys.executable, "-u", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "test_two.py"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "tests"), "PYTEST_ADDOPTS": ""}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_XDIST")}
    with open(tmp_path / "output", "w") as output:
        subprocess.run(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)
    printed = (tmp_path / "output").read_text()
    assert "1 failed, 1 passed" in printed
    assert printed.index("the reason") < printed.index("FAILURES")
