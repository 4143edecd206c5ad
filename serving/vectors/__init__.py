"""`roformer embed` and `roformer rank`: vectors of a corpus, and search among them. It needs the extra `embed`."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .embedding import EmbedReport, embed
    from .encoder import TextEncoder
    from .ranking import Match, Ranking, rank

__all__ = ["EmbedReport", "Match", "Ranking", "TextEncoder", "embed", "rank"]

# The module of each name, imported when the name is first used: torch and transformers take seconds.
_MODULES = {
    "EmbedReport": "embedding",
    "Match": "ranking",
    "Ranking": "ranking",
    "TextEncoder": "encoder",
    "embed": "embedding",
    "rank": "ranking",
}


def __getattr__(name: str):
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
