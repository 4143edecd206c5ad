"""The command line: `roformer COMMAND …`, or `python -m modeling_roformer COMMAND …`."""

from .commands import app, main

__all__ = ["app", "main"]
