"""Weights written by `model.save_weights("best_model.weights")` of tf.keras: a TensorBundle with an object graph."""

import re
from dataclasses import replace
from pathlib import Path

from ..errors import CheckpointError, errors_of
from .keras_layers import KerasLayer, read_model
from .object_graph import Node, parse_object_graph
from .tensor_bundle import TensorBundle

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_LAYER = re.compile(r"layer-(\d{1,9})")
# The dense layers inside an attention and a feed-forward layer, by bert4keras' names.
_SUBLAYERS = ("q_dense", "k_dense", "v_dense", "i0_dense", "o_dense")


class KerasBundle(TensorBundle):
    """A checkpoint of a tf.keras model; `entries` has bert4keras' layers under the names of the released checkpoints.

    `model` has what else is known about the layers. Layers without weights have no names in such a checkpoint.
    """

    def __init__(self, prefix: str | Path):
        super().__init__(prefix)
        with errors_of(self.path):
            nodes = parse_object_graph(self.read_object_graph())
            layers = _layers(nodes, _model_node(nodes))
            self.model = read_model(layers)
        names = {key: f"{layer.name}/{name}" for layer in layers for name, key in layer.weights.items()}
        names |= {key: variable for variable, key in self.model.variables.items()}
        found = [replace(entry, name=names.get(key, key.removesuffix(_SUFFIX))) for key, entry in self.entries.items()]
        self.entries = {entry.name: entry for entry in found}


def _model_node(nodes: list[Node]) -> int:
    """Return the number of the object that has layers: the model itself, or the one in a tf.train.Checkpoint."""
    if _numbered_layers(nodes[0]):
        return 0
    found = sorted({child for child in nodes[0].children.values() if _numbered_layers(nodes[child])})
    if len(found) != 1:
        raise CheckpointError(f"has {len(found) or 'no'} Keras models in its object graph instead of one")
    return found[0]


def _numbered_layers(node: Node) -> list[int]:
    """Return the children called layer-0, layer-1 and so on, in that order."""
    found = {int(match[1]): child for name, child in node.children.items() if (match := _LAYER.fullmatch(name))}
    return [found[number] for number in sorted(found)]


def _layers(nodes: list[Node], number: int) -> list[KerasLayer]:
    """Return the layers of a model in its own order, including those of nested models."""
    layers = []
    for child in dict.fromkeys(_numbered_layers(nodes[number])):
        layers += _layers(nodes, child) if _numbered_layers(nodes[child]) else [_layer(nodes, child)]
    return layers


def _layer(nodes: list[Node], number: int) -> KerasLayer:
    weights, full_names, seen = {}, [], {number}

    def walk(number: int, path: str) -> None:
        for attribute in nodes[number].attributes:
            if attribute.key.endswith(_SUFFIX):
                weights[path] = attribute.key
                full_names.append(attribute.full_name)
        children = nodes[number].children
        for name in sorted(children, key=lambda name: _SUBLAYERS.index(name) if name in _SUBLAYERS else -1):
            if children[name] not in seen:
                seen.add(children[name])
                walk(children[name], f"{path}/{name}" if path else name)

    walk(number, "")
    return KerasLayer(full_names[0].partition("/")[0] if full_names else "", weights)
