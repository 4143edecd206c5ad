"""The object graph of a TensorFlow 2 checkpoint: which Python object held each variable.

A tf.keras checkpoint names its tensors by the path to them ("layer_with_weights-3/q_dense/kernel/.ATTRIBUTES/
VARIABLE_VALUE"), and has a TrackableObjectGraph (tensorflow/core/protobuf/trackable_object_graph.proto) with the
objects on the path and the variables' own names ("Transformer-0-MultiHeadSelfAttention/dense/kernel").
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import CheckpointError
from .protobuf import BYTES, VARINT, read_fields


@dataclass(frozen=True)
class Attribute:
    """A saved value of an object: the variable's own name, and the key of its tensor."""

    full_name: str
    key: str


@dataclass(frozen=True)
class Node:
    """An object: its children (name -> number), its attributes, and the numbers of its optimiser's slots."""

    children: dict[str, int] = field(default_factory=dict)
    attributes: list[Attribute] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)


def parse_object_graph(message: bytes) -> list[Node]:
    """The nodes of a TrackableObjectGraph, the root first.

    Raises CheckpointError, without the file's name, if the message is damaged or refers to a missing object.
    """
    nodes = [_node(value) for _, value in _fields(message, {1: BYTES})]
    if not nodes:
        raise CheckpointError("is damaged: its object graph is empty")
    for node in nodes:
        if any(number >= len(nodes) for number in (*node.children.values(), *node.slots)):
            raise CheckpointError("is damaged: its object graph names an object that it does not have")
    return nodes


def _node(message: bytes) -> Node:
    """TrackableObject: children = 1, attributes = 2, slot_variables = 3, registered_saver = 4, has_checkpoint_values = 5."""
    node = Node()
    for number, value in _fields(message, {1: BYTES, 2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES}):
        if number == 1:  # ObjectReference: node_id = 1, local_name = 2
            fields = dict(_fields(value, {1: VARINT, 2: BYTES}))
            node.children[_text(fields.get(2, b""))] = fields.get(1, 0)
        elif number == 2:  # SerializedTensor: name = 1, full_name = 2, checkpoint_key = 3 (and more, in older ones)
            fields = dict(_fields(value, {1: BYTES, 2: BYTES, 3: BYTES, 4: VARINT}))
            node.attributes.append(Attribute(_text(fields.get(2, b"")), _text(fields.get(3, b""))))
        elif number == 3:  # SlotVariableReference: slot_name = 2, and the numbers of variable and slot, 1 and 3
            fields = dict(_fields(value, {1: VARINT, 2: BYTES, 3: VARINT}))
            node.slots.append(fields.get(3, 0))
    return node


def _fields(message: bytes, kinds: dict[int, int]) -> Iterator[tuple[int, int | bytes]]:
    for number, wire_type, value in read_fields(message):
        if kinds.get(number) != wire_type:
            raise CheckpointError(f"is damaged: its object graph has the unknown field {number}")
        yield number, value


def _text(value: bytes) -> str:
    text = value.decode(errors="replace")
    if text.encode() != value or not text.isprintable():
        raise CheckpointError(f"is damaged: its object graph has {text!r} where a name should be")
    return text
