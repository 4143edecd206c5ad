"""`roformer embed` and `roformer rank`: vectors of a corpus, and search among them. Needs the extra `embed`."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .embedding import EmbedReport, embed
    from .encoder import TextEncoder
    from .ranking import Match, Ranking, rank

__all__ = ["EmbedReport", "Match", "Ranking", "TextEncoder", "embed", "rank"]

# Names of each module, which is imported on their first use: torch and transformers take seconds.
_NAMES = {"embedding": ("EmbedReport", "embed"), "encoder": ("TextEncoder",), "ranking": ("Match", "Ranking", "rank")}


def __getattr__(name: str):
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
