"""The weight files that a push must delete: of a single file and shards, transformers loads the single file."""

import re
from collections.abc import Collection, Iterable

NAMES = (
    r"(?P<folder>(.*/)?)model(?P<variant>\.[^/]+)?-\d{5}-of-\d{5}\.safetensors",  # a shard
    r"(?P<folder>(.*/)?)model\.safetensors\.index(?P<variant>\.[^/]+)?\.json",
    r"(?P<folder>(.*/)?)model(?P<variant>\.[^/]+)?\.safetensors",
)


def variant_of(name: str) -> tuple[str, str] | None:
    """Return the folder and the variant of a weight file or an index; None for other files.

    >>> variant_of("model.fp16-00001-of-00002.safetensors"), variant_of("model.safetensors.index.json")
    (('', '.fp16'), ('', ''))
    """
    for pattern in NAMES:
        if match := re.fullmatch(pattern, name):
            return match["folder"], match["variant"] or ""
    return None


def replaced(names: Iterable[str], written: Collection[str]) -> list[str]:
    """Return the weight files that those in `written` replace: of the same folder and variant, and not written again.

    An index without shards replaces nothing: transformers uses the same name for the index of an adapter's shards.

    >>> replaced(["model.safetensors", "model.fp16.safetensors"], ["model-00001-of-00001.safetensors", "config.json"])
    ['model.safetensors']
    """
    variants = {variant_of(name) for name in written if not name.endswith(".json")} - {None}
    return sorted(name for name in names if name not in written and variant_of(name) in variants)
