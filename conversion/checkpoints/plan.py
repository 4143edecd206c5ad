"""Match all variables of a checkpoint to the weights of a model before anything is written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..errors import CheckpointError
from ..families.family import Family, Head, Weight, extra
from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from ..formats.dtypes import FLOATS
from ..formats.source import Source

_LAYER = re.compile(r"bert/encoder/layer_(\d+)/")


@dataclass(frozen=True)
class Plan:
    """The weights, in the file order of their variables, and what is left out: kind -> variables."""

    weights: list[Weight]
    extras: dict[str, list[str]] = field(default_factory=dict)


def make_plan(
    source: Source,
    family: Family,
    config,
    settings: Settings,
    vocabulary: Vocabulary,
    head: Head | None = None,
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Use every variable once, or leave it out as an extra of training; give every weight its variable.

    A task layer (`head`) replaces the family's own head. `left_out` maps variables that are not converted to what the
    summary calls them.

    Raises CheckpointError, one sentence naming file and variable, if configuration, vocabulary and variables do not
    belong to one model.
    """
    _check_layers(source, settings)
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
                raise CheckpointError(f"{source.path} has a variable that is not part of a {family.title}: {name}")
            extras.setdefault(kind, []).append(name)
    for name, weight in wanted.items():
        entry = source.entries.get(name)
        if entry is None:
            raise CheckpointError(f"{source.path} has no variable {name}, which the weight {weight.key} needs")
        if entry.shape != weight.shape:
            raise CheckpointError(
                f"{source.path} does not match {settings.path.name}: {name} has shape {entry.shape}, "
                f"but the configuration implies {weight.shape}"
            )
        if entry.dtype not in FLOATS:
            raise CheckpointError(
                f"{source.path} stores the weight {name} as {entry.dtype}, which is not a floating-point type"
            )
    if len(vocabulary.ids) != config.vocab_size:
        raise CheckpointError(
            f"{vocabulary.path} has {len(vocabulary.ids):,} entries, but the embedding matrix in {source.path.name} "
            f"has {config.vocab_size:,} rows"
        )
    return Plan([wanted[entry.name] for entry in source.in_file_order() if entry.name in wanted], extras)


def _check_layers(source: Source, settings: Settings) -> None:
    found = {int(match[1]) for match in map(_LAYER.match, source.entries) if match}
    layers = max(found, default=-1) + 1
    if layers != settings.values["num_hidden_layers"]:
        raise CheckpointError(
            f"{source.path} has {layers} layers, but {settings.path.name} says {settings.values['num_hidden_layers']} "
            "(num_hidden_layers)"
        )
