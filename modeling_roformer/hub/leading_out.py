"""Paths that lead out of the folder in which they are written."""

from pathlib import PurePosixPath, PureWindowsPath


def leads_out(path: str) -> bool:
    """Whether a relative path could name something outside of its folder, or nothing, on any operating system."""
    parts = PurePosixPath(path).parts
    leads_up = not parts or ".." in parts or path.startswith("/")
    return leads_up or bool(PureWindowsPath(path).drive) or bool(set(path) & {"\\", "\0"})
