"""Permissions of saved files: those that the umask gives to any new file."""

from pathlib import Path
from stat import S_IMODE


def give_new_modes(folder: Path) -> None:
    """Give the files in a folder the permissions of new files: safetensors gives its own to their owner alone."""
    probe = folder / ".mode"  # to read the umask, a process must change it, in its other threads too
    probe.touch()
    mode = S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)
