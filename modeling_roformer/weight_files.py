"""The names of the files that hold a model's weights, and which of them a save replaces.

Of a whole file and of shards that lie in one folder or repository, transformers loads the whole file. So each save must remove
what it replaces. Nothing here needs transformers.
"""

import re
from collections.abc import Collection, Iterable

NAMES = tuple(
    re.compile(r"(?P<folder>(?:.*/)?)" + name)
    for name in (
        r"model(?P<variant>\.[^/]+)?-\d{5}-of-\d{5}\.safetensors",  # a shard
        r"model\.safetensors\.index(?P<variant>\.[^/]+)?\.json",
        r"model(?P<variant>\.[^/]+)?\.safetensors",
    )
)


def variant_of(name: str) -> tuple[str, str] | None:
    """Return the folder and the variant of the weights that a file holds or lists, None if it has other content.

    >>> variant_of("model.fp16-00001-of-00002.safetensors"), variant_of("model.safetensors.index.json")
    (('', '.fp16'), ('', ''))
    """
    for pattern in NAMES:
        if match := pattern.fullmatch(name):
            return match["folder"], match["variant"] or ""
    return None


def is_index(name: str) -> bool:
    """Whether a file lists the shards of weights."""
    return variant_of(name) is not None and name.endswith(".json")


def replaced(names: Iterable[str], written: Collection[str]) -> list[str]:
    """Return the names of weights that are replaced by those in `written`: of the same folder and variant, and not written again.

    An index without its shards replaces nothing: transformers gives that name to the index of an adapter's shards, too.

    >>> replaced(["model.safetensors", "model.fp16.safetensors"], ["model-00001-of-00001.safetensors", "config.json"])
    ['model.safetensors']
    """
    variants = {variant_of(name) for name in written if not is_index(name)} - {None}
    return sorted(name for name in names if name not in written and variant_of(name) in variants)
