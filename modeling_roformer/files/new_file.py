"""The check of a file that a command will write, before the work for it begins."""

import os
from collections.abc import Iterable
from pathlib import Path

from .known_files import is_model_folder

_DEVICES = Path(os.devnull).parent


def require_writable(path: str | Path, force: bool | None, sources: Iterable[str | Path] = ()) -> None:
    """Raise FileExistsError if a file must not be written at a path.

    Args:
        path: the file.
        force: replace a file that exists. None is for a command without --force. Folders, pipes, devices and files of a
            model are never replaced.
        sources: files that the command reads; they are never replaced.
    """
    path = Path(path)
    if not path.exists():
        return
    # /dev/stdout is a link to a regular file if a shell redirects the output to one; the link would be replaced.
    if not path.is_file() or path.absolute().parent == _DEVICES:
        raise FileExistsError(f"{path} is {'a folder' if path.is_dir() else 'not a regular file'}: name a file")
    if any(os.path.exists(source) and path.samefile(source) for source in sources):
        raise FileExistsError(f"{path} is also an input: name another file")
    if is_model_folder(path.absolute().parent):
        raise FileExistsError(f"{path} is in the folder of a model: name a file outside it")
    if not force:
        advice = "" if force is None else ", or replace it with --force"
        raise FileExistsError(f"{path} already exists: name another file{advice}")
