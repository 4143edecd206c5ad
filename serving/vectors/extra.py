"""What is not installed is said in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

from ...output.extras import install_command
from ..errors import ServingError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Where the block imports what an extra brings; a ServingError says how to install it.

    >>> with extra("embed"):
    ...     import pyarrow
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ServingError(f"{error.name} is not installed: `{install_command(name)}` brings it") from None
