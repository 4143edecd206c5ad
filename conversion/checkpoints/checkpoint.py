"""A parsed checkpoint of any format, matched with the model that is made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeling_roformer.output.console import sentence_of

from ..errors import CheckpointError
from ..folder.vocabulary import Vocabulary
from ..formats.source import Source
from .plan import Plan

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer


@dataclass(frozen=True)
class Checkpoint:
    """The match of a checkpoint to the model that is made of it, without the tensors' values.

    `roformer info` prints it, and `roformer convert` carries it out.

    `family` is the recognised family's name in the registry. `fields` are those of the new config.json. The weights of
    `plan` are read from `source`. `title`, `sign`, `note` (as `written_as`), `ignored_settings` and `warnings` go into
    the summary (see ConversionReport); `rows` are extra lines of it. `check_values` raises CheckpointError if tensors
    that are left out have other values than those that replace them.

    `config` and `tokenizer` are made when they are needed, since transformers takes seconds to import.
    """

    family: str
    title: str
    sign: str | None
    source: Source
    vocabulary: Vocabulary
    fields: dict[str, Any]
    plan: Plan
    make_config: Callable[[], PreTrainedConfig]
    make_tokenizer: Callable[[PreTrainedConfig], RoFormerTokenizer]
    check_values: Callable[[], None]
    note: str | None = None
    ignored_settings: list[str] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def config(self) -> PreTrainedConfig:
        """The configuration of the new model; CheckpointError if its fields do not describe one."""
        return self.make_config()

    @cached_property
    def tokenizer(self) -> RoFormerTokenizer:
        """The tokenizer of the new model; CheckpointError if its fields do not describe one."""
        return self.make_tokenizer(self.config)

    @property
    def architecture(self) -> str:
        """The class of the new model."""
        return self.fields["architectures"][0]

    @property
    def parameters(self) -> dict[str, int]:
        """The number of parameters by the dtype in the source."""
        counts: dict[str, int] = {}
        for weight in self.plan.weights:
            dtype = self.source.entries[weight.variable].dtype
            counts[dtype] = counts.get(dtype, 0) + prod(weight.shape)
        return counts


def make_config(path: Path, base: str, fields: dict) -> PreTrainedConfig:
    """Make the configuration of a "roformer", "bert" or "nezha" from the fields in the file `path`."""
    from transformers import BertConfig

    from modeling_roformer.configuration import RoFormerConfig
    from modeling_roformer.nezha_configuration import NezhaConfig

    kinds = {"roformer": RoFormerConfig, "bert": BertConfig, "nezha": NezhaConfig}
    try:
        return kinds[base].from_dict(fields)
    except Exception as error:  # from huggingface_hub's checks, from ours, or from a value of the wrong type
        raise CheckpointError(f"{path} does not describe a valid model: {sentence_of(error)}") from None
