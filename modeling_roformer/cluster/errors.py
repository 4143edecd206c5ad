"""The one error of a cluster."""


class ClusterError(ValueError):
    """Ray cannot do what was asked; the text is one sentence that says why, and what to do."""
