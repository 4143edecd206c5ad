"""The exception of data."""


class DataError(ValueError):
    """Data that cannot be read as requested. The message is one line: file, row, problem, and what to do."""
