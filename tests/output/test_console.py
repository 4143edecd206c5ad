"""Output that is hidden while a block runs is shown again after it."""

import logging

import pytest
from transformers.utils import logging as transformers_logging

from modeling_roformer.output.console import no_transformers_bar, no_transformers_report, no_warnings


@pytest.mark.parametrize(
    ("hiding", "shows"),
    [
        (no_transformers_report, lambda: transformers_logging.get_verbosity() <= logging.WARNING),
        (no_transformers_bar, transformers_logging.is_progress_bar_enabled),
        (lambda: no_warnings("some_library"), lambda: logging.getLogger("some_library").isEnabledFor(logging.WARNING)),
    ],
)
def test_blocks(hiding, shows):
    assert shows()
    with pytest.raises(KeyError), hiding():
        assert not shows()
        raise KeyError
    assert shows()
