"""What all tests of training share."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_collection():
    """Trainer collects garbage before each training: not among all that was imported, which takes longer than training."""
    gc.freeze()
    yield
    gc.unfreeze()
