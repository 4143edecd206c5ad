"""Output that is hidden while a block runs is shown again after the last of the blocks that overlap, in whatever
threads they are."""

import logging
from contextlib import ExitStack

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
def test_blocks_that_overlap(hiding, shows):
    first, second = ExitStack(), ExitStack()
    assert shows()
    first.enter_context(hiding())
    second.enter_context(hiding())
    first.close()
    assert not shows()
    second.close()
    assert shows()
    with pytest.raises(KeyError), hiding():
        raise KeyError
    assert shows()


def test_the_level_that_a_user_chose_stays():
    logger = logging.getLogger("some_other_library")
    logger.setLevel(logging.INFO)
    with no_warnings("some_other_library"):
        assert logger.level == logging.INFO
    assert logger.level == logging.INFO
