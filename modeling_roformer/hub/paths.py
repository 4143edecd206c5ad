"""Paths in a repository: those that must not be written, and those of this machine that must not be published."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

GIT = {".git", "git~1"}  # the second is the short name of the first on Windows
IGNORED_ON_HFS = re.compile(r"[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")  # code points, in names
SETTINGS = ("config.json", "generation_config.json", "tokenizer_config.json", "adapter_config.json")
PATH_FIELD = re.compile(r".*name_or_path|(vocab|merges|tokenizer|special_tokens_map)_file|user_dict")


def leads_out(path: str) -> bool:
    """Return whether a relative path could name nothing, or something outside its folder, on any operating system."""
    parts = PurePosixPath(path).parts
    leads_up = not parts or ".." in parts or path.startswith("/")
    return leads_up or bool(PureWindowsPath(path).drive) or bool(set(path) & {"\\", "\0"})


def check_names(names: Iterable[str]) -> None:
    """Raise ValueError if a file would be written outside the folder, or would make the folder a git repository.

    Names are read as any system might read them, as git does before it checks out a file (verify_path in its
    read-cache.c).
    """
    folders: dict[PurePosixPath, set[str]] = {}
    for name in names:
        if leads_out(name):
            raise ValueError(f"the repository lists a file named {name!r}, which would be written outside the folder")
        path = PurePosixPath(*map(_as_any_system_reads_it, PurePosixPath(name).parts))
        if GIT.intersection(path.parts):
            raise ValueError(f"the repository lists a file named {name!r}, which could make git run commands")
        for inside in (path, *path.parents):
            folders.setdefault(inside.parent, set()).add(inside.name + "/" * (inside != path))
    for folder, inside in folders.items():
        # A folder can be a repository without being named .git (is_git_directory in git's setup.c).
        if "head" in inside and ("commondir" in inside or {"objects/", "refs/"} <= inside):
            raise ValueError(f"the folder {str(folder)!r} is a git repository, which could make git run commands")


def _as_any_system_reads_it(part: str) -> str:
    part = IGNORED_ON_HFS.sub("", part)
    return part.partition(":")[0].rstrip(" .").lower() or part  # after ":" comes the name of an NTFS stream


def without_local_paths(files: Mapping[str, Path | bytes]) -> dict[str, bytes]:
    """Return new content for each settings file that names a path of this machine: only the path's last part is kept.

    transformers before version 5 wrote such paths into config.json, and still writes them into adapter_config.json. The
    files stay as they are. Files that are not JSON are left out.
    """
    changed = {}
    for name, file in files.items():
        if PurePosixPath(name).name in SETTINGS:
            try:
                settings = json.loads(file if isinstance(file, bytes) else file.read_bytes())
            except (ValueError, RecursionError):
                continue
            cleaned = _cleaned(settings)
            if cleaned != settings:
                changed[name] = (json.dumps(cleaned, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
    return changed


def _cleaned(value: object, field: str = "") -> object:
    if isinstance(value, dict):
        return {key: _cleaned(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cleaned(inner, field) for inner in value]
    if isinstance(value, str) and PATH_FIELD.fullmatch(field) and _is_local(value):
        return PureWindowsPath(value).name
    return value


def _is_local(name: str) -> bool:
    """Return whether a name is a path; `name` and `owner/name` are on the Hub, unless such a folder exists here."""
    if "/" not in name and "\\" not in name:
        return False
    return not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) or Path(name).exists()
