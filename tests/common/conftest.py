"""Puts transformers' common tests where they can be imported, in the first process, before others of xdist start."""

import sys

import pytest
from fetch import fetch

try:
    sys.path.insert(0, str(fetch()))
except RuntimeError as error:
    pytest.exit(str(error), returncode=pytest.ExitCode.INTERNAL_ERROR)


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnknownMarkWarning")  # transformers' own marks
