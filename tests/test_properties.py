"""The profiles of Hypothesis that the property tests run with."""

import os
import re
import subprocess
import sys

import pytest
from helpers.paths import REPOSITORY

PROPERTY_TESTS = """
import os
from hypothesis import given, strategies as st
from helpers.properties import max_examples

if "LOAD" in os.environ:
    import modeling_roformer.tokenization.wordpiece

@given(st.integers())
def test_of_no_number(value):
    print("first", value)

@max_examples(30)
@given(st.integers())
def test_of_a_number(value):
    print("second", value)
"""


@pytest.fixture
def drawn(tmp_path):
    """Function that runs two property tests with the conftest.py of this folder, and returns what they draw."""
    (tmp_path / "test_two.py").write_text(PROPERTY_TESTS)

    def drawn(*options, **variables) -> tuple[list[str], list[str]]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            os.devnull,
            "--rootdir",
            tmp_path,
            "-s",
            "-p",
            "conftest",
            *options,
        ]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "tests"), **variables}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        return tuple(re.findall(rf"{name} (-?\d+)", done.stdout) for name in ("first", "second"))

    return drawn


@pytest.mark.slow  # four processes of pytest
def test_runs_draw_the_same_examples_but_where_others_are_asked_for(drawn):
    """The same also where a module of the package was loaded before, of which Hypothesis draws the numbers
    otherwise."""
    first, second = drawn()
    assert (len(first), len(second)) == (100, 30)
    assert drawn(LOAD="") == (first, second)
    for others in drawn("--hypothesis-profile=random"), drawn("--hypothesis-profile=random", CI="true"):
        assert [len(values) for values in others] == [2_000, 600]
        assert others[0][:100] != first


def test_every_number_of_examples_is_one_that_the_profile_multiplies():
    """One alone is not: the HDF5 library is not made for any bytes, and so has the same examples in every run."""
    tests = (REPOSITORY / "tests").rglob("test_*.py")
    assert [path.name for path in tests if "\n@settings(" in path.read_text(encoding="utf-8")] == [
        "test_keras_layers.py"
    ]
