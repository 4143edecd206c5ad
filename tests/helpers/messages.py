"""Checks of a message: the facts in it, not its words, so that the words can change."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def assert_states(message: object, *facts: object) -> None:
    """Assert that a text states every fact: a name, a value or a number, whole and not as a part of a longer one.

    ```python
    >>> assert_states("input_ids has shape (3,), but must have (batch, length)", "input_ids", (3,))
    ```
    """
    text = str(message)
    for fact in facts:
        wanted = re.escape(str(fact))
        before = r"(?<![\w.])" if re.match(r"\w", str(fact)) else ""
        after = r"(?!\w|\.\d)" if re.search(r"\w$", str(fact)) else ""
        assert re.search(before + wanted + after, text), f"{fact!s} is not stated in: {text}"


@contextmanager
def refused(exception: type[BaseException], *facts: object) -> Iterator[pytest.ExceptionInfo]:
    """Assert that the block raises this very exception, with a message on one line that states every fact."""
    with pytest.raises(exception) as caught:
        yield caught
    assert type(caught.value) is exception, f"{type(caught.value).__name__} is raised, not {exception.__name__}"
    assert "\n" not in str(caught.value), f"the message has more than one line: {caught.value}"
    assert_states(caught.value, *facts)
