"""Check that graphs for ONNX Runtime are complete, and that the files with their external data are published.

A graph is a protocol buffer, whose messages are read to the innermost. Weights are skipped, so that neither the package
onnx nor memory for them is needed. Weights can lie in a file beside the graph, which gives its name, an offset and a
length: https://onnx.ai/onnx/repo-docs/ExternalData.html.
"""

import mmap
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path

from .paths import leads_out
from .protocol_buffers import DamagedMessage, read_message

GRAPH = "onnx/model.onnx"  # the path that the Hub's tools expect
# https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3: number, name and content of every field that holds a message,
# and of the other fields that are needed.
FIELDS = """
ModelProto: 7 graph GraphProto, 8 opset_import OperatorSetIdProto, 14 metadata_props StringStringEntryProto,
  20 training_info TrainingInfoProto, 25 functions FunctionProto, 26 configuration DeviceConfigurationProto
GraphProto: 1 node NodeProto, 5 initializer TensorProto, 11 input ValueInfoProto, 12 output ValueInfoProto,
  13 value_info ValueInfoProto, 14 quantization_annotation TensorAnnotation,
  15 sparse_initializer SparseTensorProto, 16 metadata_props StringStringEntryProto
FunctionProto: 4 input text, 5 output text, 7 node NodeProto, 9 opset_import OperatorSetIdProto,
  11 attribute_proto AttributeProto, 12 value_info ValueInfoProto, 14 metadata_props StringStringEntryProto
TrainingInfoProto: 1 initialization GraphProto, 2 algorithm GraphProto,
  3 initialization_binding StringStringEntryProto, 4 update_binding StringStringEntryProto
NodeProto: 1 input text, 2 output text, 4 op_type text, 5 attribute AttributeProto,
  9 metadata_props StringStringEntryProto, 10 device_configurations NodeDeviceConfigurationProto
AttributeProto: 5 t TensorProto, 6 g GraphProto, 7 floats floats, 8 ints integers, 10 tensors TensorProto,
  11 graphs GraphProto, 14 tp TypeProto, 15 type_protos TypeProto, 22 sparse_tensor SparseTensorProto,
  23 sparse_tensors SparseTensorProto
TensorProto: 1 dims number, 2 data_type number, 3 segment TensorProto.Segment, 4 float_data floats,
  5 int32_data integers, 6 string_data strings, 7 int64_data integers, 8 name text, 9 raw_data place,
  10 double_data doubles, 11 uint64_data integers, 13 external_data StringStringEntryProto, 14 data_location number,
  16 metadata_props StringStringEntryProto
SparseTensorProto: 1 values TensorProto, 2 indices TensorProto
StringStringEntryProto: 1 key text, 2 value text
ValueInfoProto: 1 name text, 2 type TypeProto, 4 metadata_props StringStringEntryProto
TypeProto: 1 tensor_type TypeProto.Tensor, 4 sequence_type TypeProto.Sequence, 5 map_type TypeProto.Map,
  7 opaque_type TypeProto.Opaque, 8 sparse_tensor_type TypeProto.SparseTensor, 9 optional_type TypeProto.Optional
TypeProto.Tensor: 2 shape TensorShapeProto
TypeProto.SparseTensor: 2 shape TensorShapeProto
TypeProto.Sequence: 1 elem_type TypeProto
TypeProto.Optional: 1 elem_type TypeProto
TypeProto.Map: 2 value_type TypeProto
TypeProto.Opaque:
TensorShapeProto: 1 dim TensorShapeProto.Dimension
TensorShapeProto.Dimension:
TensorProto.Segment:
TensorAnnotation: 2 quant_parameter_tensor_names StringStringEntryProto
OperatorSetIdProto: 2 version number
NodeDeviceConfigurationProto: 2 sharding_spec ShardingSpecProto
ShardingSpecProto: 3 index_to_device_group_map IntIntListEntryProto, 4 sharded_dim ShardedDimProto
IntIntListEntryProto:
ShardedDimProto: 2 simple_sharding SimpleShardedDimProto
SimpleShardedDimProto:
DeviceConfigurationProto:
"""


def _tables(text: str) -> dict[str, dict[int, tuple[str, str]]]:
    """Return the tables that `read_message` takes: kind of message -> number of a field -> its name and content."""
    tables = {}
    for message in re.split(r"\n(?! )", text.strip()):
        kind, _, fields = message.partition(":")
        numbered = (field.split() for field in fields.split(",") if field)
        tables[kind] = {int(number): (name, content) for number, name, content in numbered}
    return tables


MESSAGES = _tables(FIELDS)
# Bits of a number of each data_type but strings.
BITS = {
    **dict.fromkeys((1, 6, 12), 32),  # float, int32, uint32
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),  # uint8, int8, bool, float8
    **dict.fromkeys((4, 5, 10, 16), 16),  # uint16, int16, float16, bfloat16
    **dict.fromkeys((7, 11, 13, 14), 64),  # int64, double, uint64, complex64
    15: 128,  # complex128
    **dict.fromkeys((21, 22, 23), 4),  # uint4, int4, float4
    **dict.fromkeys((25, 26), 2),  # uint2, int2
}
VALUES = ("raw_data", "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
EXTERNAL = 1  # a value of data_location
MOST_DIMENSIONS = 64  # numpy's limit, with which onnx reads tensors
BYTE_COUNT = re.compile(r"\d{1,19}", re.ASCII)


def check_graphs(files: Mapping[str, Path]) -> None:
    """Raise ValueError if a graph is damaged, or its weights are not published.

    Args:
        files: the published files, by their path in the repository; each `.onnx` among them is checked.
    """
    for name, path in files.items():
        if not name.lower().endswith(".onnx"):
            continue
        try:
            model = _read(path)
            _check_model(model)
            for tensor in _all_within(model, "ModelProto", "TensorProto"):
                _check_values(tensor, name, files)
        except DamagedMessage as error:
            raise ValueError(f"{path} is not a complete ONNX graph ({error}): export the model again") from None


def _read(path: Path) -> dict[str, list]:
    size = path.stat().st_size
    if size == 0:
        raise DamagedMessage("it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return read_message(data, 0, size, MESSAGES, "ModelProto")


def _all_within(message: dict[str, list], kind: str, wanted: str) -> Iterator[dict[str, list]]:
    """Yield every message of the wanted kind in a message, at any depth."""
    for name, inner in MESSAGES[kind].values():
        if inner in MESSAGES:
            for child in message.get(name, ()):
                if inner == wanted:
                    yield child
                yield from _all_within(child, inner, wanted)


def _check_model(model: dict[str, list]) -> None:
    if len(model.get("graph", ())) != 1 or not model.get("opset_import"):
        raise DamagedMessage("it has no graph, or no opset_import")
    _check_graph(model["graph"][0], ())
    for function in model.get("functions", ()):
        _check_names(function, function.get("input", []), function.get("output", []), ())


def _check_graph(graph: dict[str, list], outer: tuple[set[str], ...]) -> None:
    """Check that the names that a graph and its nodes read are defined; `outer` has the names around a nested graph."""
    tensors = [
        *graph.get("initializer", ()),
        *(t for s in graph.get("sparse_initializer", ()) for t in s.get("values", ())),
    ]
    given = [name for message in (*graph.get("input", ()), *tensors) for name in message.get("name", ())]
    outputs = [name for message in graph.get("output", ()) for name in message.get("name", ())]
    if not outputs:
        raise DamagedMessage("a graph has no outputs")
    _check_names(graph, given, outputs, outer)


def _check_names(graph: dict[str, list], given: list[str], outputs: list[str], outer: tuple[set[str], ...]) -> None:
    nodes = graph.get("node", ())
    known = (*outer, {"", *given, *(name for node in nodes for name in node.get("output", ()))})
    for node in nodes:
        _check_known(node.get("input", ()), known, f"a node {node.get('op_type', [''])[0]}")
        for attribute in node.get("attribute", ()):
            for inner in (*attribute.get("g", ()), *attribute.get("graphs", ())):
                _check_graph(inner, known)
    _check_known(outputs, known, "the graph's output")


def _check_known(names: Iterable[str], known: tuple[set[str], ...], reader: str) -> None:
    for name in names:
        if not any(name in some for some in known):
            raise DamagedMessage(f"{name[:100]!r}, which {reader} needs, is not defined")


def _check_values(tensor: dict[str, list], name: str, files: Mapping[str, Path]) -> None:
    """Check that a tensor of the graph `name` has as many bytes as its shape and type imply."""
    called = tensor.get("name", ["without a name"])[0][:100]
    kind, dims = tensor.get("data_type", [0])[-1], tensor.get("dims", [])
    if kind == 0 or len(dims) > MOST_DIMENSIONS or any(size < 0 for size in dims):
        raise DamagedMessage(f"the tensor {called} has no data_type, or the impossible dims {dims[:MOST_DIMENSIONS]}")
    size = -(-prod(dims) * BITS[kind] // 8) if kind in BITS else None
    if tensor.get("data_location", [0])[-1] == EXTERNAL or "external_data" in tensor:
        _check_external(tensor, called, size or 0, name, files)
    elif "raw_data" in tensor:
        start, end = tensor["raw_data"][-1]
        if size is not None and end - start != size:
            raise DamagedMessage(f"the tensor {called} has {end - start:,} of {size:,} bytes")
    elif size and not any(field in tensor for field in VALUES):
        raise DamagedMessage(f"the tensor {called} has none of its {size:,} bytes")


def _check_external(tensor: dict[str, list], called: str, size: int, name: str, files: Mapping[str, Path]) -> None:
    """Check that the bytes of a tensor are in a published file, beside or below its graph."""
    entries = tensor.get("external_data", [])
    said = {entry.get("key", [""])[-1]: entry.get("value", [""])[-1] for entry in entries}
    location, offset, length = said.get("location", ""), said.get("offset", "0"), said.get("length")
    path = files[name]
    if len(said) < len(entries):
        raise DamagedMessage(f"the tensor {called} has an entry of external_data twice")
    if leads_out(location):
        raise ValueError(
            f"{path} keeps the tensor {called} in {location!r}, which is not a path within the folder: export the "
            "model again, with its data beside the graph"
        )
    data = posixpath.normpath(posixpath.join(posixpath.dirname(name), location))
    if data not in files:
        trouble = "not published" if (path.parent / location).exists() else "missing"
        raise ValueError(
            f"{path} keeps the tensor {called} in {location}, which is {trouble}: put that file beside the graph, or "
            "export the model again"
        )
    if not all(BYTE_COUNT.fullmatch(number) for number in (offset, length or "0")):
        raise DamagedMessage(f"the tensor {called} has the offset {offset!r} and the length {length!r}")
    found, needed = files[data].stat().st_size, size if length is None else int(length)
    if needed < size:
        raise DamagedMessage(f"the tensor {called} has {needed:,} of {size:,} bytes")
    if int(offset) + needed > found:
        raise ValueError(
            f"{files[data]} is truncated: {path.name} keeps {needed:,} bytes of the tensor {called} there, from byte "
            f"{int(offset):,}, but the file has {found:,}: export the model again"
        )
