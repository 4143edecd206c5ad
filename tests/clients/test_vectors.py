"""Tools that use vectors: they get the vectors of `roformer embed`."""

import pytest

pytestmark = pytest.mark.clients


def test_sentence_transformers_is_installed():
    import sentence_transformers

    assert sentence_transformers.__version__
