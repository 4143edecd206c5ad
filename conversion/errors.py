"""The errors that a checkpoint can cause."""

from pathlib import Path


class CheckpointError(ValueError):
    """A legacy checkpoint that cannot be converted; its message is one sentence that names the file and the problem."""


def not_finite(path: Path, name: str) -> CheckpointError:
    """Return the error for a tensor with infinite values or NaN."""
    return CheckpointError(
        f"{path} has values that are not finite in {name}: the file is damaged, or training diverged"
    )
