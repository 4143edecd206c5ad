"""Tests whose reference is right from some version on, which is higher than the lowest that this package runs with."""

from importlib.metadata import version

import pytest
from packaging.version import Version


def reference_from(name: str, lowest: str, why: str) -> pytest.MarkDecorator:
    """Skip a test if the installed package `name`, with which it compares, is older than `lowest`."""
    return pytest.mark.skipif(Version(version(name)) < Version(lowest), reason=f"{name} below {lowest}: {why}")
