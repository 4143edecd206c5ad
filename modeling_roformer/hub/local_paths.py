"""Paths of this machine in the settings of a model: what is published has their last part alone.

transformers before version 5 wrote into config.json, and still writes into adapter_config.json, from where a model was loaded.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

SETTINGS = ("config.json", "generation_config.json", "tokenizer_config.json", "adapter_config.json")
FIELD = re.compile(r".*name_or_path|(vocab|merges|tokenizer|special_tokens_map)_file|user_dict")


def without_local_paths(files: Mapping[str, Path | bytes]) -> dict[str, bytes]:
    """The settings among these files that name a path of this machine, by their path in the repository, without its folders.

    The files stay as they are. What cannot be read as JSON is left out.
    """
    changed = {}
    for name, file in files.items():
        if PurePosixPath(name).name in SETTINGS:
            text = file if isinstance(file, bytes) else file.read_bytes()
            try:
                settings = json.loads(text)
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
    if isinstance(value, str) and FIELD.fullmatch(field) and _is_local(value):
        return PureWindowsPath(value).name
    return value


def _is_local(name: str) -> bool:
    """Whether a model is named by a path: `name` and `owner/name` are on the Hub, unless there is such a folder here."""
    if "/" not in name and "\\" not in name:
        return False
    return not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) or Path(name).exists()
