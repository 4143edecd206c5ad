"""Weights in Keras' HDF5, as `model.save_weights` of Keras (of tf.keras for names in .h5) and `model.save` write them.

The file (or its group `model_weights`, if the whole model was saved) has an attribute `layer_names` and a group for
each layer; a layer's group has an attribute `weight_names` and a dataset for each weight. Long lists of names are split
into the attributes `layer_names0`, `layer_names1`, … A nested model is one group with the weights of all its layers.
h5py reads these names and the places of the data; the data is read without it.

The format has no checksums: only the structure, and finite values, can show that a file is intact.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from modeling_roformer.output.console import sentence_of

from ..errors import CheckpointError
from .dtypes import DTYPES
from .keras_layers import KerasLayer, read_model
from .source import Piece, Source, read_piece


class KerasHDF5(Source):
    """A file opened for reading; `entries` has bert4keras' layers under the names of the released checkpoints.

    `model` has what else is known about the layers. Raises CheckpointError, one sentence naming the file, if it is
    damaged, or has no weights of a bert4keras model; ImportError if h5py is not installed.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            import h5py
        except ImportError:
            raise ImportError(f"{self.path} is a Keras HDF5 file, which needs h5py: pip install h5py") from None
        try:
            # The file is not locked: shared disks often cannot do it, and nothing is written.
            with h5py.File(self.path, "r", locking=False) as file:
                layers, stored = _read(file, self.path.stat().st_size)
            _check_overlaps(stored)
            self.model = read_model(layers)
        except CheckpointError as error:
            raise CheckpointError(f"{self.path} {error}") from None
        # h5py raises different errors for different kinds of damage.
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
            if isinstance(error, (PermissionError, FileNotFoundError)):
                raise
            raise CheckpointError(f"{self.path} is damaged, or not an HDF5 file: {sentence_of(error)}") from None
        names = {key: f"{layer.name}/{name}" for layer in layers for name, key in layer.weights.items()}
        names |= {key: variable for variable, key in self.model.variables.items()}
        self.entries = {names[key]: Piece(names[key], *place) for key, place in stored.items()}

    def in_file_order(self) -> list[Piece]:
        """Return the entries in file order, which is the fastest to read."""
        return sorted(self.entries.values(), key=lambda entry: entry.offset)

    def check(self, name: str) -> None:
        """Do nothing: the format has no checksums, and opening the file showed that the weight lies within it."""

    def load(self, entry: Piece) -> np.ndarray:
        """Return one weight with any values."""
        return read_piece(self.path, entry)


def _read(file, file_size: int) -> tuple[list[KerasLayer], dict[str, tuple]]:
    """Return the layers, and the place of each weight: stored name -> dtype, shape, size, offset."""
    group = file.get("model_weights", file)
    names = _names(group, "layer_names")
    if names is None:
        if "layers" in file or "_layer_checkpoint_dependencies" in file:
            raise CheckpointError(
                "is in Keras' newer format, .weights.h5, without layer names: load it into its model, and save the "
                "weights again under another name in .h5"
            )
        raise CheckpointError("is an HDF5 file, but not from Keras: it has no layer_names")
    described = _described_layers(file)
    layers: list[KerasLayer] = []
    stored: dict[str, tuple] = {}
    for name in names:
        weights = _names(group[name], "weight_names") if name in group else None
        if weights is None:
            raise CheckpointError(f"is damaged: it has no weight_names for its layer {name}")
        found = {}
        for weight in weights:
            place = f"{name}/{weight}"
            if place in stored:
                raise CheckpointError(f"is damaged: it lists the weight {place} twice")
            stored[place] = _place(group[name], weight, place, file_size)
            found[weight.removesuffix(":0")] = place
        layers += _split(name, found, described)
    _check_listed(group, names, stored)
    return layers, stored


def _names(group, attribute: str) -> list[str] | None:
    """Return a list of names, which may be stored in numbered pieces; None if there is none."""
    pieces = [group.attrs[attribute]] if attribute in group.attrs else []
    while (numbered := f"{attribute}{len(pieces)}") in group.attrs and attribute not in group.attrs:
        pieces.append(group.attrs[numbered])
    if not pieces:
        return None
    names = [name for piece in pieces for name in np.asarray(piece).reshape(-1).tolist()]
    texts = [name.decode() if isinstance(name, bytes) else name for name in names]
    if not all(isinstance(text, str) and text and text.isprintable() for text in texts):
        raise CheckpointError(f"is damaged: its {attribute} is not a list of names")
    if len(set(texts)) != len(texts):
        raise CheckpointError(f"is damaged: its {attribute} has a name twice")
    return texts


def _place(group, weight: str, place: str, file_size: int) -> tuple[str, tuple[int, ...], int, int]:
    """Return dtype, shape, size and offset of a dataset, which must be one contiguous piece, as Keras writes it."""
    import h5py

    at = group.get(weight.strip("/"))
    if not isinstance(at, h5py.Dataset) or at.file != group.file:  # a link may lead into another file
        raise CheckpointError(f"is damaged: it has no weight {place}")
    dtype = at.dtype.name
    if dtype not in DTYPES or at.dtype != DTYPES[dtype].numpy:  # a big-endian one differs
        raise CheckpointError(f"stores {place} as {at.dtype}, but only {', '.join(DTYPES)} can be read")
    if at.chunks is not None or at.is_virtual or at.external:
        raise CheckpointError(f"stores {place} compressed or chunked, which Keras never does")
    size, offset = at.nbytes, at.id.get_offset()
    if size and offset is None:
        raise CheckpointError(f"is damaged: the data of {place} was never written")
    if size != at.id.get_storage_size():
        raise CheckpointError(f"is damaged: {place} of shape {at.shape}, dtype {at.dtype} does not take {size:,} bytes")
    if size and (offset < 0 or offset + size > file_size):
        raise CheckpointError(f"is truncated or damaged: {place} should take {size:,} bytes from byte {offset:,}")
    return dtype, at.shape, size, offset or 0


def _check_listed(group, names: list[str], stored: dict[str, tuple]) -> None:
    """Raise CheckpointError if a dataset is in no list: a damaged list may still be a list."""
    places = {"/".join(part for part in place.split("/") if part) for place in stored}

    def check(name: str, at) -> None:
        if hasattr(at, "nbytes") and name not in places:
            what = "weight_names" if name.split("/")[0] in names else "layer_names"
            raise CheckpointError(f"is damaged, or not a bert4keras model: its {what} lacks {name}")

    group.visititems(check)


def _check_overlaps(stored: dict[str, tuple]) -> None:
    pieces = sorted((offset, offset + size, place) for place, (_, _, size, offset) in stored.items() if size)
    for (_, end, before), (start, _, place) in pairwise(pieces):
        if start < end:
            raise CheckpointError(f"is damaged: {before} and {place} overlap")


def _split(name: str, weights: dict[str, str], described: dict[str, KerasLayer]) -> list[KerasLayer]:
    """Return a group's layer or, for a nested model, its layers, whose names are prefixes of the weights' names."""
    inside: dict[str, dict[str, str]] = {}
    for weight, place in weights.items():
        first, _, rest = weight.partition("/")
        inside.setdefault(first if rest else name, {})[rest or weight] = place
    # Keras may repeat a layer's name with a number, or put the name of an outer scope before it.
    is_model = len(inside) > 1 and not any(first == name or first.startswith(f"{name}_") for first in inside)
    if not is_model:
        own = {weight.removeprefix(f"{name}/"): place for weight, place in weights.items()}
        return [_with_description(KerasLayer(name, own), described)]
    return [_with_description(KerasLayer(first, found), described) for first, found in inside.items()]


def _with_description(layer: KerasLayer, described: dict[str, KerasLayer]) -> KerasLayer:
    known = described.get(layer.name, layer)
    return KerasLayer(layer.name, layer.weights, known.kind, known.activation, known.inputs)


def _described_layers(file) -> dict[str, KerasLayer]:
    """Return the layers by the configuration of a whole saved model, including those of nested models."""
    text = file.attrs.get("model_config")
    if text is None:
        return {}
    text = text.decode() if isinstance(text, bytes) else text
    if not isinstance(text, str):
        raise CheckpointError("is damaged: its model_config is not a string")
    described: dict[str, KerasLayer] = {}

    def collect(config: object) -> None:
        for layer in config.get("layers", []):
            settings = layer["config"]
            name, activation = settings["name"], settings.get("activation")
            if isinstance(activation, dict):
                activation = activation.get("config", activation.get("class_name"))
            nodes = layer.get("inbound_nodes") or []
            inputs = tuple(sorted({name for node in nodes for name in _input_names(node)}))
            described[name] = KerasLayer(name, {}, layer["class_name"], activation or "linear", inputs)
            if "layers" in settings:
                collect(settings)

    try:
        collect(json.loads(text)["config"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError("is damaged: its model_config does not describe a Keras model") from None
    return described


def _input_names(node: object) -> Iterator[str]:
    """Yield the layers that a call takes its inputs from: each is [name, call, output, arguments], at any nesting."""
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        if len(node) >= 3 and isinstance(node[0], str) and type(node[1]) is int and type(node[2]) is int:
            yield node[0]
            node = node[3:]
        for part in node:
            yield from _input_names(part)
