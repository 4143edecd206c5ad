"""File names in a repository that must not be written: they lead out of the folder, or make git run commands."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from .errors import HubError
from .leading_out import leads_out

GIT = {".git", "git~1"}  # the second is the short name of the first on Windows
# Code points that HFS+ ignores in names.
IGNORED_ON_HFS = re.compile(r"[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")


def check_names(names: Iterable[str]) -> None:
    """Raises HubError if a file would be written elsewhere, or would turn a folder into a git repository.

    Names are read as any system might read them, as git does before it checks out a file (verify_path in its
    read-cache.c).
    """
    folders: dict[PurePosixPath, set[str]] = {}
    for name in names:
        if leads_out(name):
            raise HubError(f"the repository lists a file named {name!r}, which would be written outside the folder")
        path = PurePosixPath(*map(_as_any_system_sees_it, PurePosixPath(name).parts))
        if GIT.intersection(path.parts):
            raise HubError(
                f"the repository lists a file named {name!r}, which would make git run commands in the folder"
            )
        for inside in (path, *path.parents):
            folders.setdefault(inside.parent, set()).add(inside.name + "/" * (inside != path))
    for folder, inside in folders.items():
        # A folder can be a repository without being named .git (is_git_directory in git's setup.c).
        if "head" in inside and ("commondir" in inside or {"objects/", "refs/"} <= inside):
            raise HubError(
                f"the repository lists a folder {str(folder)!r} that is a git repository, which would make git run "
                "commands in it"
            )


def _as_any_system_sees_it(part: str) -> str:
    part = IGNORED_ON_HFS.sub("", part)
    return part.partition(":")[0].rstrip(" .").lower() or part  # after ":" comes the name of an NTFS stream
