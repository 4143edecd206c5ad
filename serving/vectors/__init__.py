"""`roformer embed` and `roformer rank`: vectors of a corpus, and search among them. Needs the extra `embed`."""

from typing import TYPE_CHECKING

from modeling_roformer.output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .embedding import EmbedReport, embed
    from .encoder import TextEncoder
    from .ranking import Match, Ranking, rank

__all__ = ["EmbedReport", "Match", "Ranking", "TextEncoder", "embed", "rank"]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "embedding": ("EmbedReport", "embed"),
        "encoder": ("TextEncoder",),
        "ranking": ("Match", "Ranking", "rank"),
    },
)
