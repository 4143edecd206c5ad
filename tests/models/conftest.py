import logging

import pytest
from helpers.packed_kernel import pack_any_padding


@pytest.fixture
def packs_any_padding(monkeypatch):
    pack_any_padding(monkeypatch)


@pytest.fixture
def said(caplog):
    """Record the warnings of transformers."""
    logger = logging.getLogger("transformers")
    propagates, logger.propagate = logger.propagate, True
    with caplog.at_level(logging.WARNING):
        yield caplog
    logger.propagate = propagates
