"""Optional dependencies of the package ("extras")."""

from collections.abc import Iterator
from contextlib import contextmanager


def not_installed(extra: str, *modules: str) -> str:
    """Return the message that modules of an extra are not installed, with the command that installs them.

    The command installs from the clone: modeling_roformer is in no package registry.

    >>> not_installed("ray", "ray")
    "ray is not installed: run `pip install '.[ray]'`"
    """
    return f"{', '.join(modules)} {'is' if len(modules) == 1 else 'are'} not installed: run `pip install '.[{extra}]'`"


@contextmanager
def needs_extra(extra: str, error: type[Exception]) -> Iterator[None]:
    """Raise `error` with `not_installed`'s message if an import in the block fails.

    >>> with needs_extra("embed", ServingError):
    ...     import pyarrow
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        raise error(not_installed(extra, str(missing.name))) from None
