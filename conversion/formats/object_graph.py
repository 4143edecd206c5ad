"""The object graph of a TensorFlow 2 checkpoint: the Python objects that held the variables.

A tf.keras checkpoint names its tensors by the path to them ("layer_with_weights-3/q_dense/kernel/.ATTRIBUTES/
VARIABLE_VALUE"), and has a TrackableObjectGraph (tensorflow/core/protobuf/trackable_object_graph.proto) with the
objects on the path and the variables' own names ("Transformer-0-MultiHeadSelfAttention/dense/kernel").
"""

from dataclasses import dataclass, field

from .protocol_buffers import read_fields


@dataclass(frozen=True)
class Attribute:
    """A saved value of an object: the variable's own name, and the key of its tensor."""

    full_name: str
    key: str


@dataclass(frozen=True)
class Node:
    """An object: its children (name -> number) and its attributes."""

    children: dict[str, int] = field(default_factory=dict)
    attributes: list[Attribute] = field(default_factory=list)


def parse_object_graph(message: bytes) -> list[Node]:
    """Return the nodes of a TrackableObjectGraph, the root first."""
    return [_node(value) for _, value in read_fields(message)]


def _node(message: bytes) -> Node:
    """Read a TrackableObject: children = 1, attributes = 2; 3 to 5 are not needed."""
    node = Node()
    for number, value in read_fields(message):
        if number == 1:  # ObjectReference: node_id = 1, local_name = 2
            fields = dict(read_fields(value))
            node.children[fields.get(2, b"").decode()] = fields.get(1, 0)
        elif number == 2:  # SerializedTensor: name = 1, full_name = 2, checkpoint_key = 3 (and more, in older ones)
            fields = dict(read_fields(value))
            node.attributes.append(Attribute(fields.get(2, b"").decode(), fields.get(3, b"").decode()))
    return node
