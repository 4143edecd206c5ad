"""The one error of serving."""


class ServingError(ValueError):
    """A model cannot be served as asked; the text is one sentence that says why, and what to do."""
