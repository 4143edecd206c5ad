"""Checks of graphs for ONNX Runtime before a push: messages are complete, and external data is published."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from helpers.messages import assert_states, refused
from helpers.versions import reference_from
from onnx import TensorProto, helper, numpy_helper

from modeling_roformer.hub import onnx_graphs, push
from modeling_roformer.hub.onnx_graphs import check_graphs
from modeling_roformer.hub.protocol_buffers import NUMBER, PLACE, TEXT, DamagedMessage, read_message

ROWS = np.arange(64, dtype=np.float32).reshape(4, 16)
DATA = "model.onnx_data"


def network(name: str = "rows") -> onnx.ModelProto:
    """Rows of a table by their ids, doubled where a flag says so: a graph within a node of a graph."""
    value = helper.make_tensor_value_info
    branches = [
        helper.make_graph(
            [helper.make_node("Mul", ["found", factor], [f"by_{factor}"])],
            factor,
            [],
            [value(f"by_{factor}", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.float32([number]), factor)],
        )
        for factor, number in (("one", 1), ("two", 2))
    ]
    nodes = [
        helper.make_node("Gather", [name, "ids"], ["found"]),
        helper.make_node("If", ["flag"], ["values"], then_branch=branches[1], else_branch=branches[0]),
    ]
    inputs = [value("ids", TensorProto.INT64, ["batch"]), value("flag", TensorProto.BOOL, [])]
    outputs = [value("values", TensorProto.FLOAT, ["batch", 16])]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [numpy_helper.from_array(ROWS, name)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    onnx.checker.check_model(model, full_check=True)
    return model


@pytest.fixture
def folder(tmp_path):
    """A folder that `push` takes, whose graph keeps its table in a file beside it."""
    (tmp_path / "onnx").mkdir()
    (tmp_path / "config.json").write_text('{"model_type": "roformer"}')
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    path = tmp_path / "onnx" / "model.onnx"
    onnx.save(network(), path, save_as_external_data=True, location=DATA, size_threshold=100)
    return tmp_path


def assert_refused(folder: Path, *facts: object) -> None:
    with refused(ValueError, *facts):
        push(folder, "somebody/model", token="hf_never_sent")


def check(path: Path) -> None:
    check_graphs({path.name: path})


OLD_ONNX = reference_from("onnx", "1.23", "it lacks newer fields and types")


@OLD_ONNX
def test_the_fields_of_messages_are_those_of_the_package_onnx():
    scalars = {
        NUMBER: "int64 int32 enum",
        TEXT: "string",
        PLACE: "bytes",
        "integers": "int32 int64 uint64",
        "floats": "float",
        "doubles": "double",
        "strings": "bytes",
    }
    types = {
        value: name.removeprefix("TYPE_").lower() for name, value in vars(_any_field()).items() if name[:5] == "TYPE_"
    }
    seen, waiting = set(), [onnx.ModelProto.DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        kind = message.full_name.removeprefix("onnx.")
        if kind in seen:
            continue
        seen.add(kind)
        table = dict(onnx_graphs.MESSAGES[kind])
        for field in message.fields:
            if field.message_type is not None:
                inner = field.message_type.full_name.removeprefix("onnx.")
                assert table.pop(field.number) == (field.name, inner), (kind, field.name)
                waiting.append(field.message_type)
            elif field.number in table:
                name, holds = table.pop(field.number)
                assert name == field.name and types[field.type] in scalars[holds].split(), (kind, name)
        assert not table, kind
    assert seen == onnx_graphs.MESSAGES.keys()


def _any_field() -> type:
    return type(onnx.ModelProto.DESCRIPTOR.fields[0])


@OLD_ONNX
def test_the_sizes_of_types_are_those_of_the_package_onnx(tmp_path):
    for kind, bits in onnx_graphs.BITS.items():
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        tensor = numpy_helper.from_array(np.zeros(8, dtype), "t")
        assert tensor.data_type == kind and len(tensor.raw_data) == bits, TensorProto.DataType.Name(kind)


class Counted(bytes):
    """Bytes that count how many of them are read."""

    read = 0

    def __getitem__(self, at):
        type(self).read += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("length", [10, 11, 600_000])
def test_a_number_that_does_not_end(tmp_path, length):
    """A varint has at most 10 bytes: reading further took time that grew with the square of the file's length."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\xff" * length)
    with refused(ValueError, path, "byte 0"):
        check(path)
    Counted.read = 0
    with pytest.raises(DamagedMessage):
        read_message(Counted(path.read_bytes()), 0, length, onnx_graphs.MESSAGES, "ModelProto")
    assert Counted.read == 10


def sealed(number: int, content: bytes) -> bytes:
    """A record that holds a message, with the length that the message has."""
    size, length = len(content), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


def test_a_graph_that_was_cut_off_within_a_whole_file(tmp_path):
    """At every byte of the graph, and of one within it, however well the records around it say its length."""
    path, whole = tmp_path / "model.onnx", network()
    around = onnx.ModelProto()
    around.CopyFrom(whole)
    around.ClearField("graph")
    graph = whole.graph.SerializeToString()
    path.write_bytes(around.SerializeToString() + sealed(7, graph))
    check(path)
    for length in range(len(graph)):
        path.write_bytes(around.SerializeToString() + sealed(7, graph[:length]))
        with refused(ValueError, path, "ONNX"):
            check(path)
    # And the second branch of the node `If`: field 6 of its attribute, in field 5 of the node, in field 1 of the graph.
    node = whole.graph.node[1]
    name, inner = node.attribute[1].name.encode(), node.attribute[1].g.SerializeToString()
    del node.attribute[1], whole.graph.node[1]
    for length in range(len(inner) + 1):
        attribute = sealed(1, name) + b"\xa0\x01\x05" + sealed(6, inner[:length])
        nested = sealed(1, node.SerializeToString() + sealed(5, attribute)) + whole.graph.SerializeToString()
        path.write_bytes(around.SerializeToString() + sealed(7, nested))
        if length == len(inner):
            check(path)
        else:
            with refused(ValueError, path, "ONNX"):
                check(path)


def test_what_is_accepted_is_read_by_the_package_onnx(tmp_path):
    """With a bit of the file turned, there is one error of ours, or onnx reads the file too."""
    path, whole = tmp_path / "model.onnx", network().SerializeToString()
    accepted = 0
    for at in range(len(whole)):
        for bit in {3, at % 8}:  # the third turns a field's number into its neighbour's
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                check(path)
            except ValueError as error:
                assert_states(error, path)
            else:
                accepted += 1
                onnx.load(path)
    assert 0 < accepted < 2 * len(whole)


def test_messages_that_are_nested_without_end(tmp_path):
    path, content = tmp_path / "model.onnx", b""
    for _ in range(1000):
        content = sealed(1, sealed(5, sealed(6, content)))
    path.write_bytes(sealed(7, content))
    with refused(ValueError, path, 100):
        check(path)


def test_weights_that_are_not_there(tmp_path):
    for change, facts in {
        "no table": ["'rows'", "Gather"],
        "no inner table": ["'one'"],
        "no input": ["'ids'"],
        "no outputs": ["outputs"],
        "half of the bytes": ["rows", 128, 256],
        "no bytes": ["rows", 256],
        "no type": ["rows", "data_type"],
        "no shape": ["rows", "[-4, 16]"],
    }.items():
        model = network()
        table = model.graph.initializer[0]
        if change == "no table":
            del model.graph.initializer[:]
        elif change == "no inner table":
            del model.graph.node[1].attribute[0].g.initializer[:]
        elif change == "no input":
            del model.graph.input[0]
        elif change == "no outputs":
            del model.graph.output[:]
        elif change == "half of the bytes":
            table.raw_data = table.raw_data[:128]
        elif change == "no bytes":
            table.ClearField("raw_data")
        elif change == "no type":
            table.ClearField("data_type")
        else:
            table.dims[0] = -4
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        with refused(ValueError, path, *facts):
            check(path)


def test_numbers_in_fields_of_their_own_are_values_too(tmp_path):
    model = network()
    model.graph.initializer[0].CopyFrom(helper.make_tensor("rows", TensorProto.FLOAT, ROWS.shape, ROWS.reshape(-1)))
    assert model.graph.initializer[0].float_data
    onnx.save(model, tmp_path / "model.onnx")
    check(tmp_path / "model.onnx")


def external(folder: Path, **changes: str) -> None:
    """Change where the table of the graph is said to be."""
    path = folder / "onnx" / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        entry.value = changes.pop(entry.key, entry.value)
    assert not changes
    path.write_bytes(model.SerializeToString())


def test_data_beside_the_graph_is_checked_with_it(folder):
    files = {f"onnx/{path.name}": path for path in (folder / "onnx").iterdir()}
    assert sorted(files) == ["onnx/model.onnx", f"onnx/{DATA}"]
    check_graphs(files)
    # In a folder of its own, and in several files, as it is for large models.
    (folder / "onnx" / "data").mkdir()
    (folder / "onnx" / DATA).rename(folder / "onnx" / "data" / "table")
    external(folder, location="data/table")
    check_graphs({"onnx/model.onnx": files["onnx/model.onnx"], "onnx/data/table": folder / "onnx" / "data" / "table"})


OUTSIDE = ["../../../../etc/passwd", "/etc/passwd", "../config.json", "C:\\table", "..\\table", "data/../../table", ""]


@pytest.mark.parametrize("location", OUTSIDE)
def test_data_outside_of_the_folder(folder, location):
    external(folder, location=location)
    assert_refused(folder, "model.onnx", repr(location), "rows")


def test_data_that_is_missing_or_not_published(folder):
    (folder / "onnx" / DATA).rename(folder / "onnx" / ".table")
    assert_refused(folder, "rows", DATA, "missing")
    external(folder, location=".table")
    assert_refused(folder, "rows", ".table", "published")
    (folder / "onnx" / "model.onnx").rename(folder / "model.onnx")  # elsewhere than the Hub's tools look for it
    shutil.copy(folder / "onnx" / ".table", folder / "onnx" / DATA)
    external_of = onnx.load(folder / "model.onnx", load_external_data=False)
    assert external_of.graph.initializer[0].external_data
    assert_refused(folder, folder / "model.onnx", ".table")


def test_a_link_to_data_outside_of_the_folder(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "table"
    (folder / "onnx" / DATA).rename(elsewhere)
    (folder / "onnx" / DATA).symlink_to(elsewhere)
    assert_refused(folder, elsewhere)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"offset": "1"}, ["byte 1", 256]),
        ({"length": "257"}, ["byte 0", 257, 256]),
        ({"offset": "9" * 19}, [f"byte {10**19 - 1:,}", 256]),
        ({"length": "252"}, [252, 256]),
        ({"offset": "-4"}, ["'-4'"]),
        ({"offset": "0x0"}, ["'0x0'"]),
        ({"length": "9" * 5000}, ["9" * 5000]),
        ({"length": "all"}, ["'all'"]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_data_that_does_not_have_the_bytes(folder, changes, facts):
    external(folder, **changes)
    assert_refused(folder, "rows", *facts)


def test_data_that_was_cut_off(folder):
    data = (folder / "onnx" / DATA).read_bytes()
    for length in (0, 1, len(data) - 1):
        (folder / "onnx" / DATA).write_bytes(data[:length])
        assert_refused(folder, folder / "onnx" / DATA, "rows", 256, length)


def test_a_graph_of_any_name_is_checked(folder):
    onnx.save(network(), folder / "decoder.ONNX")
    (folder / "decoder.ONNX").write_bytes((folder / "decoder.ONNX").read_bytes()[:-1])
    assert_refused(folder, folder / "decoder.ONNX")
