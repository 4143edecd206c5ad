"""What all tests share."""

import os

import pytest


@pytest.fixture(autouse=True)
def same_environ(monkeypatch):
    """`Dataset.map` in several processes leaves a copy in the place of `os.environ`, which rich, for one, does not see."""
    monkeypatch.setattr(os, "environ", os.environ)
