"""A parsed checkpoint of any format, and the match of all its tensors to the weights of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from modeling_roformer.output.console import sentence_of

from ..errors import CheckpointError
from ..families.family import MODEL, Config, Family, Head, Weight, extra
from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from ..formats.dtypes import FLOATS
from ..formats.source import Source, Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer


@dataclass(frozen=True)
class Plan:
    """The weights, in the file order of their variables, and the variables that are left out, by kind."""

    weights: list[Weight]
    extras: dict[str, list[str]] = field(default_factory=dict)


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


def make_plan(
    source: Source,
    family: Family,
    config: Config,
    settings: Settings,
    head: Head | None = None,
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Use every variable once, or leave it out as an extra of training; give every weight its variable.

    A task layer (`head`) replaces the family's own head. `left_out` maps variables that are not converted to their kind
    in the summary.

    Raises CheckpointError, one sentence naming file and variable, if configuration and variables do not belong to one
    model.
    """
    weights = family.weights(config)
    if head is not None:
        weights = head.weights_on(weights)
    wanted = {weight.variable: weight for weight in weights}
    extras: dict[str, list[str]] = {}
    for name in source.entries:
        if name not in wanted:
            kind = left_out.get(name) or extra(name, source.entries)
            kind = kind or next((kind for start, kind in family.dropped.items() if name.startswith(start)), None)
            if kind is None:
                remedy = "" if name.startswith(MODEL) else "; --head none leaves out what is not of the model"
                raise CheckpointError(
                    f"{source.path} has a variable that is not part of a {family.title}: {name}{remedy}"
                )
            extras.setdefault(kind, []).append(name)
    for name, weight in wanted.items():
        entry = source.entries.get(name)
        if entry is None:
            raise CheckpointError(f"{source.path} has no variable {name}, which the weight {weight.key} needs")
        check_tensor(source, entry, weight.shape, settings.path)
    return Plan([wanted[entry.name] for entry in source.in_file_order() if entry.name in wanted], extras)


def check_tensor(source: Source, entry: Tensor, shape: tuple[int, ...], config_file: Path) -> None:
    """Raise CheckpointError if a weight has another shape than the configuration implies, or no float dtype."""
    if entry.shape != shape:
        raise CheckpointError(
            f"{source.path} does not match {config_file.name}: {entry.name} has shape {entry.shape}, but the "
            f"configuration implies {shape}"
        )
    if entry.dtype not in FLOATS:
        raise CheckpointError(f"{source.path} stores the weight {entry.name} as {entry.dtype}; expected a float dtype")
