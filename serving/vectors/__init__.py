"""`roformer embed` and `roformer rank`: vectors of a corpus, and search among them. Needs the extra `embed`."""

from typing import TYPE_CHECKING

from modeling_roformer.output.lazy_names import lazy_names

if TYPE_CHECKING:
    from .embedding import EmbedReport, embed
    from .encoder import TextEncoder
    from .evaluation import Evaluation, evaluate
    from .fusion import TunedWeight
    from .matches import Match, Ranking
    from .queries import read_qrels, read_relevant
    from .ranking import rank, tune

__all__ = [
    "EmbedReport",
    "Evaluation",
    "Match",
    "Ranking",
    "TextEncoder",
    "TunedWeight",
    "embed",
    "evaluate",
    "rank",
    "read_qrels",
    "read_relevant",
    "tune",
]
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "embedding": ("EmbedReport", "embed"),
        "encoder": ("TextEncoder",),
        "evaluation": ("Evaluation", "evaluate"),
        "fusion": ("TunedWeight",),
        "matches": ("Match", "Ranking"),
        "queries": ("read_qrels", "read_relevant"),
        "ranking": ("rank", "tune"),
    },
)
