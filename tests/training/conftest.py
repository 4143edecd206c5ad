"""Fixtures of all tests of training."""

import pytest


@pytest.fixture
def no_pictures(monkeypatch):
    """Skip drawing curves, which takes longer than a small training."""
    monkeypatch.setattr("modeling_roformer.training.comparing.curves.draw_panels", lambda picture, *_, **__: picture)
