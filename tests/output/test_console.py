"""Output that is hidden while a block runs is shown again after it."""

import logging

import pytest
from transformers.utils import logging as transformers_logging

from modeling_roformer.output.console import no_transformers_bar, no_warnings


@pytest.fixture(
    params=[
        (no_transformers_bar, transformers_logging.is_progress_bar_enabled),
        (lambda: no_warnings("transformers"), lambda: transformers_logging.get_verbosity() <= logging.WARNING),
        (lambda: no_warnings("some_library"), lambda: logging.getLogger("some_library").isEnabledFor(logging.WARNING)),
    ],
    ids=["bar", "transformers", "library"],
)
def hiding_and_shows(request):
    return request.param


def test_blocks(hiding_and_shows):
    hiding, shows = hiding_and_shows
    assert shows()
    with pytest.raises(KeyError), hiding():
        assert not shows()
        raise KeyError
    assert shows()


def test_a_level_that_the_user_chose_stays():
    logger = logging.getLogger("another_library")
    for level, within in (logging.INFO, logging.INFO), (logging.WARNING, logging.ERROR), (logging.INFO, logging.INFO):
        logger.setLevel(level)
        with no_warnings("another_library"):
            assert logger.level == within
        assert logger.level == level
