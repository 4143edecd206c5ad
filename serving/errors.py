"""The exception of serving."""


class ServingError(ValueError):
    """A model cannot be served as requested. The message is one line: the reason, and what to do."""
