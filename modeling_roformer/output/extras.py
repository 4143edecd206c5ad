"""Optional dependencies of the package ("extras")."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, error: type[Exception]) -> Iterator[None]:
    """Raise `error` with the command that installs an extra, from the clone, if an import in the block fails.

    >>> with needs_extra("embed", ServingError):
    ...     import pyarrow
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        raise error(f"{missing.name} is not installed: run `pip install '.[{extra}]'`") from None
