"""BERTs that transformers' class cannot compute, as a RoFormer with BERT's table of positions.

SimBERT has RoFormer-Sim's linear pooler, whose output is a sentence vector, and UniLM's mask. Small BERTs have
factorised embeddings: narrower than the hidden states.
"""

from dataclasses import replace

from . import roformer_sim, roformer_v1, wobert
from .family import TABLE, Config, Family
from .weights import Weight, weight

POOLER_ROW = "left out; --family simbert keeps it for sentence vectors, if this is a SimBERT"
_NOTE = "a RoFormer with a table of positions, since transformers' BERT has no {}"


def _with_table(family: Family, **changes) -> Family:
    """Return a family of RoFormers with a table of positions in place of rotary ones."""

    def weights(config: Config) -> list[Weight]:
        width = config.embedding_size or config.hidden_size
        table = weight("roformer.embeddings.position_embeddings.weight", config.max_position_embeddings, width)
        return [table, *family.weights(config)]

    return replace(
        family,
        weights=weights,
        fields={**family.fields, "position_encoding": "learned"},
        positions=TABLE,
        tokenizer=wobert.FAMILY.tokenizer,
        **changes,
    )


FAMILY = _with_table(
    roformer_sim.FAMILY, name="simbert", title="SimBERT", note=_NOTE.format("linear pooler and no UniLM mask")
)
FACTORISED = _with_table(
    roformer_v1.FAMILY,
    name=wobert.FAMILY.name,
    title=wobert.FAMILY.title,
    character_title=wobert.FAMILY.character_title,
    note=_NOTE.format("factorised embeddings"),
)
