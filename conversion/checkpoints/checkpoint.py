"""A parsed checkpoint of any format: all that conversion needs except the tensors' values."""

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
    """What to write: the configuration, the tokenizer, and the weights of `plan`, read from `source`.

    `family` is the recognised family's name in the registry. `title`, `sign`, `note` (as `written_as`) and
    `ignored_settings` go into the summary (see ConversionReport); `rows` are extra lines of it.
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
