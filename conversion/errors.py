"""The one error that a checkpoint can cause."""


class CheckpointError(ValueError):
    """A legacy checkpoint that cannot be converted; its message is one sentence that names the file and the problem."""
