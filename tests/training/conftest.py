"""What all tests of training share."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_collection():
    """Trainer collects garbage before each training: not among all that was imported, which takes longer than training."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def no_pictures(monkeypatch):
    """Curves of runs are not drawn, which takes longer than a small training: for tests that do not look at them."""
    monkeypatch.setattr("modeling_roformer.training.curves.draw_panels", lambda picture, *_, **__: picture)
