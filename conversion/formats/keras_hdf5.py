"""Weights in Keras' HDF5, as `model.save_weights` of Keras (of tf.keras for names in .h5) and `model.save` write them.

The file (or its group `model_weights`, if the whole model was saved) has an attribute `layer_names` and a group for
each layer; a layer's group has an attribute `weight_names` and a dataset for each weight. Long lists of names are split
into the attributes `layer_names0`, `layer_names1`, … A nested model is one group with the weights of all its layers.

The format has no checksums: only the structure, and finite values, can show that a file is intact.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from modeling_roformer.output.console import sentence_of

from ..errors import CheckpointError, errors_of
from .dtypes import DTYPES
from .keras_layers import KerasLayer, read_model
from .source import Source, Tensor


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
            with h5py.File(self.path, "r", locking=False) as file, errors_of(self.path):
                layers, stored = _read(file)
                self.model = read_model(layers)
        except (OSError, RuntimeError, KeyError) as error:  # h5py's for different kinds of damage
            raise CheckpointError(f"{self.path} is damaged: {sentence_of(error)}") from None
        names = {key: f"{layer.name}/{name}" for layer in layers for name, key in layer.weights.items()}
        names |= {key: variable for variable, key in self.model.variables.items()}
        self._stored = {names[key]: key for key in stored}
        self.entries = {names[key]: Tensor(names[key], *facts) for key, facts in stored.items()}

    def load(self, entry: Tensor) -> np.ndarray:
        """Return one weight with any values."""
        import h5py

        with h5py.File(self.path, "r", locking=False) as file:
            array = file.get("model_weights", file)[self._stored[entry.name]][()]
        return array.astype(DTYPES[entry.dtype].numpy, copy=False)


def _read(file) -> tuple[list[KerasLayer], dict[str, tuple]]:
    """Return the layers, and the properties of each weight: stored name -> dtype, shape, size."""
    group = file.get("model_weights", file)
    described = _described_layers(file)
    layers: list[KerasLayer] = []
    stored: dict[str, tuple] = {}
    for name in _names(group, "layer_names"):
        found = {}
        for weight in _names(group[name], "weight_names"):
            place = f"{name}/{weight}"
            dataset = group[place]
            stored[place] = dataset.dtype.name, dataset.shape, dataset.nbytes
            found[weight.removesuffix(":0")] = place
        layers += _split(name, found, described)
    return layers, stored


def _names(group, attribute: str) -> list[str]:
    """Return a list of names, which may be stored in numbered pieces."""
    pieces = [group.attrs[attribute]] if attribute in group.attrs else []
    while (numbered := f"{attribute}{len(pieces)}") in group.attrs and attribute not in group.attrs:
        pieces.append(group.attrs[numbered])
    if not pieces:
        raise CheckpointError(
            f"has no {attribute}: if Keras wrote its newer format (.weights.h5), load it into its model, and save the "
            "weights again under another name in .h5"
        )
    names = [name for piece in pieces for name in np.asarray(piece).reshape(-1).tolist()]
    return [name.decode() if isinstance(name, bytes) else name for name in names]


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

    collect(json.loads(text)["config"])
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
