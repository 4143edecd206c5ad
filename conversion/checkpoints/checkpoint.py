"""A checkpoint of whatever form, understood: all that conversion needs besides the numbers of its tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..folder.vocabulary import Vocabulary
from ..formats.source import Source
from .plan import Plan

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from ...tokenization.tokenizer import RoFormerTokenizer


@dataclass(frozen=True)
class Checkpoint:
    """What is to be written: the configuration, the tokenizer, and the weights of `plan` from `source`.

    `family` is the name in the registry of what was found; `title`, `sign`, `note` (as `written_as`) and
    `ignored_settings` are what the summary says of it (see ConversionReport), `rows` further lines of it.
    """

    family: str
    title: str
    sign: str | None
    source: Source
    vocabulary: Vocabulary
    tokenizer: RoFormerTokenizer
    config: PreTrainedConfig
    plan: Plan
    note: str | None = None
    ignored_settings: list[str] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)
