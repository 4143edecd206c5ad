"""`roformer embed` and `roformer rank`: vectors of a corpus, and search among them. It needs the extra `embed`."""

from ...lazy_package import import_lazily

import_lazily(
    __name__,
    {
        "EmbedReport": "embed",
        "Match": "rank",
        "Ranking": "rank",
        "TextEncoder": "encoder",
        "embed": "embed",
        "rank": "rank",
    },
)
