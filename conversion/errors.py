"""The errors that a checkpoint can cause."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class CheckpointError(ValueError):
    """A legacy checkpoint that cannot be converted; its message is one sentence that names the file and the problem."""


def not_finite(path: Path, name: str) -> CheckpointError:
    """Return the error for a tensor with infinite values or NaN."""
    return CheckpointError(
        f"{path} has values that are not finite in {name}: the file is damaged, or training diverged"
    )


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Put the name of a file in front of each CheckpointError of the block."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{path} {error}") from None
