"""The definition of a family of checkpoints: its configuration, and the variable of each weight.

A family is one small data object in its own file (see roformer_v1.py); registry.py lists them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..folder.vocabulary import Vocabulary
from ..formats.source import Source
from .weights import Weight

# Where positions come from: rotation of queries and keys, distances of two tokens, or a table of the input.
ROTARY, RELATIVE, TABLE = "rotary", "relative", "table"
# Which tokens a token attends to: all, the earlier ones, or those of the first segment and the earlier ones.
BIDIRECTIONAL, CAUSAL, UNILM = "", "lm", "unilm"
MASKS = {BIDIRECTIONAL: "attention in both directions", CAUSAL: "a causal mask", UNILM: "UniLM's mask"}

Config = Any  # a configuration, or any object with its sizes: transformers takes seconds to import


@dataclass(frozen=True)
class Family:
    """A family of checkpoints, whose models have these `positions` and, without a sign of another, this `mask`.

    `weights` lists every weight of the family's own model of the class `base` ("roformer", "bert" or "nezha"), given
    its configuration. `fields`, `ends` and `tokenizer` say what the family implies, in every format, where the files
    leave it open: `fields` are fields of the configuration, `ends` maps fields of the first and last token of texts to
    tokens, and `tokenizer` gives arguments of the tokenizer. `dropped` maps prefixes of variables that are not needed
    to their kind in the summary. `character_title` is the title of checkpoints whose vocabulary has no words. `note`
    names the result, if it is of another kind. `computed` returns the variables of a source that the model computes,
    with their kind in the summary, and `check_values` raises CheckpointError if their values differ.
    """

    name: str
    title: str
    weights: Callable[[Config], list[Weight]]
    fields: Mapping[str, Any] = field(default_factory=dict)
    base: str = "roformer"
    positions: str = ROTARY
    mask: str = BIDIRECTIONAL
    ends: Mapping[str, str | None] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    tokenizer: Callable[[Config], dict[str, object]] = lambda config: {}
    character_title: str | None = None
    note: str | None = None
    computed: Callable[[Source], dict[str, str]] = lambda source: {}
    check_values: Callable[[Source, Config], None] = lambda source, config: None

    def title_of(self, vocabulary: Vocabulary) -> str:
        """Return the title of a checkpoint of this family with this vocabulary."""
        return self.title if vocabulary.word_level else self.character_title or self.title


POOLER = {"bert/pooler/dense/": "pooler"}  # of `Family.dropped`
