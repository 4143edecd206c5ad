"""Match the tensors of a checkpoint with the weights of a model: each is used once, or left out by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from ..errors import CheckpointError
from ..families.family import Family
from ..families.training_state import extra
from ..families.weights import MODEL, Weight
from ..formats.dtypes import FLOATS
from ..formats.source import Source, Tensor

# Tensors that a file of PyTorch may have besides the weights of the class, and their kind in the summary.
_LEFT_OUT = {
    r"(\w+\.)?encoder\.embed_positions\.weight": "table of sinusoids",
    r"(\w+\.)?embeddings\.(position_ids|token_type_ids)": "buffer",
    r"(\w+\.)?encoder\..*relative_positions_encoding\.positions_encoding": "table of sinusoids",
    r"cls\.seq_relationship\.(weight|bias)": "next-sentence head",
    r"(\w+\.)?pooler\.dense\.(weight|bias)": "pooler",
}
_POSITIONS = "embeddings.position_embeddings.weight"
_DUPLICATE = "second copy of a tied weight"
# One parameter in memory, which versions of transformers save under one of these names or under both.
_TWINS = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
_TWINS |= {bias: other for other, bias in _TWINS.items()}


@dataclass(frozen=True)
class Plan:
    """The weights, each with its tensor's name as `variable`, in file order, and the other tensors by kind.

    `copies` maps each second copy of a tied weight to the tensor that is used.
    """

    weights: list[Weight]
    extras: dict[str, list[str]] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)


def make_plan(
    source: Source,
    weights: Iterable[Weight],
    config_file: Path,
    architecture: str,
    left_out: Callable[[str], str],
    place: Callable[[str], str] = lambda name: name,
    tied: Mapping[str, str] = MappingProxyType({}),
    optional: Iterable[str] = (),
) -> Plan:
    """Use every tensor once, or leave it out; give every weight its tensor.

    `place` returns the `variable` of the weight that a tensor may be, and `left_out` the kind of any other tensor. Tied
    weights map to those that they share their values with. `optional` weights may be missing, if they are all missing.

    Raises CheckpointError, one sentence naming file and tensor, if configuration and tensors are not of one model.
    """
    wanted = {weight.variable: weight for weight in weights}
    tensors: dict[str, str] = {}
    extras: dict[str, list[str]] = {}
    copies: dict[str, str] = {}
    for name in source.entries:
        variable = place(name)
        if variable not in wanted:
            extras.setdefault(left_out(name), []).append(name)
            continue
        if variable in tensors:
            raise CheckpointError(
                f"{source.path} has two tensors for the weight {variable}: {tensors[variable]} and {name}"
            )
        tensors[variable] = name
    for variable, weight in wanted.items():
        if variable in tensors:
            check_tensor(source, source.entries[tensors[variable]], weight.shape, config_file)
    for variable, original in tied.items():
        if variable in tensors:
            copy = tensors.pop(variable)
            if tensors.setdefault(original, copy) != copy:
                copies[copy] = tensors[original]
                extras.setdefault(_DUPLICATE, []).append(copy)
    for variable in wanted.keys() & _TWINS.keys() - tied.keys() - tensors.keys():
        if _TWINS[variable] in tensors:
            tensors[variable] = tensors[_TWINS[variable]]
    missing = [variable for variable in wanted if variable not in tensors and variable not in tied]
    if missing and set(missing) != set(optional):
        key = wanted[missing[0]].key
        needs = "" if key == missing[0] else f", which the weight {key} needs"
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(
            f"{source.path} has no tensor {missing[0]}{more} of {architecture}{needs}; {another_class(config_file)}"
        )
    order = {entry.name: number for number, entry in enumerate(source.in_file_order())}
    used = [replace(wanted[variable], variable=name) for variable, name in tensors.items()]
    return Plan(sorted(used, key=lambda weight: order[weight.variable]), extras, copies)


def another_class(config_file: Path) -> str:
    """Return the advice for tensors that are not those of the class in a configuration."""
    return f"correct architectures or num_hidden_layers in {config_file.name} if another model was saved"


def check_tensor(source: Source, entry: Tensor, shape: tuple[int, ...], config_file: Path) -> None:
    """Raise CheckpointError if a weight has another shape than the configuration implies, or no float dtype."""
    if entry.shape != shape:
        raise CheckpointError(
            f"{source.path} does not match {config_file.name}: {entry.name} has shape {entry.shape}, but the "
            f"configuration implies {shape}"
        )
    if entry.dtype not in FLOATS:
        raise CheckpointError(f"{source.path} stores the weight {entry.name} as {entry.dtype}; expected a float dtype")


def variable_left_out(source: Source, family: Family, known: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function of a variable that is not a weight: its kind, `known` or that of training's variables.

    It raises CheckpointError if nothing says that the variable is not needed.
    """

    def kind_of(name: str) -> str:
        kind = known.get(name) or extra(name, source.entries)
        kind = kind or next((kind for start, kind in family.dropped.items() if name.startswith(start)), None)
        if kind is None:
            remedy = "" if name.startswith(MODEL) else "; --head none leaves out what is not of the model"
            raise CheckpointError(f"{source.path} has a variable that is not part of a {family.title}: {name}{remedy}")
        return kind

    return kind_of


def tensor_left_out(source: Source, architecture: str, becomes_roformer: bool, path: Path) -> Callable[[str], str]:
    """Return a function of a tensor of PyTorch that is not a weight: its kind in the summary.

    It raises CheckpointError if nothing says that the tensor is not needed.
    """

    def kind_of(name: str) -> str:
        if becomes_roformer and name.endswith(_POSITIONS):
            return "table of positions"
        for pattern, kind in _LEFT_OUT.items():
            if re.fullmatch(pattern, name):
                return kind
        advice = "to convert the encoder alone, save it by AutoModel first" if becomes_roformer else another_class(path)
        raise CheckpointError(f"{source.path} has a tensor that is not part of {architecture}: {name}; {advice}")

    return kind_of
