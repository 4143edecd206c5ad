"""Keras' files that are damaged, hold something else, or leave open how their task layer is applied."""

import json
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.legacy_checkpoints import copy_form, edit_config
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY

from modeling_roformer.conversion.checkpoints.heads import HEADS
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.formats.keras_bundle import KerasBundle
from modeling_roformer.conversion.formats.keras_hdf5 import KerasHDF5
from modeling_roformer.conversion.formats.protocol_buffers import BYTES, VARINT, read_fields, write_field
from modeling_roformer.conversion.formats.tensor_bundle import TensorBundle
from modeling_roformer.conversion.inspection.info import info

FIXTURES = REPOSITORY / "tests" / "fixtures" / "keras"
LEGACY = REPOSITORY / "tests" / "fixtures" / "legacy"


def folder_with(tmp_path: Path, name: str, file: str) -> Path:
    """A folder with one form of a fixture, to change."""
    return copy_form(FIXTURES / name, file, tmp_path / "legacy")


def not_converted(tmp_path: Path, *facts: object, **options) -> str:
    """Assert that conversion fails with an error that states the facts, and leaves nothing. Return the message."""
    before = sorted(tmp_path.iterdir())
    with refused(CheckpointError, "legacy", *facts) as caught:
        convert(tmp_path / "legacy", tmp_path / "output", **options)
    assert sorted(tmp_path.iterdir()) == before
    return str(caught.value)


def text_list(names: list[str]) -> np.ndarray:
    return np.array([name.encode() for name in names])


# How the task layer is applied.

CHOICES = ["--head classification", "--head triplet", "--head tokens", "--head none"]


@pytest.mark.parametrize(
    ("name", "file", "head", "facts"),
    [
        ("classification", "best_model.weights", "auto", ["dense", "unnamed layer", *CHOICES]),
        ("v2_classification", "best_model.weights", "auto", ["dense", *CHOICES]),
        ("nested", "best_model.h5", "auto", ["dense", "lambda", *CHOICES]),
        ("triplet", "best_model.h5", "classification", ["dense", "masked mean", "--head classification"]),
        ("classification", "best_model.h5", "triplet", ["dense", "[CLS]", "--head triplet"]),
        ("tokens", "best_model.weights", "classification", ["dense", "every token", "--head classification"]),
        ("classification", "best_model.weights", "triplet", ["Dense(2)", "one output", "--head none"]),
        ("crf", "best_model.h5", "auto", ["dense", "conditional_random_field", "--head none"]),
        ("crf", "best_model.weights", "tokens", ["dense", "conditional_random_field", "--head none"]),
        ("pooler", "best_model.h5", "auto", ["Pooler-Dense", "dense", "--head none"]),
        ("pooler", "best_model.h5", "classification", ["Pooler-Dense", "--head pooler", "--head linear-pooler"]),
        ("pooler", "whole_model.h5", "tokens", ["dense", "pooler", "--head tokens"]),
        ("pooler", "whole_model.h5", "linear-pooler", ["dense", "pooler (tanh)", "--head linear-pooler"]),
        ("classification", "best_model.h5", "pooler", ["dense", "[CLS]", "--head pooler"]),
        ("classification", "best_model.weights", "pooler", ["dense", "without a pooler", "--head pooler"]),
        ("triplet", "best_model.h5", "tokens", ["dense", "masked mean", "--head tokens"]),
        ("bert_classification", "best_model.h5", "auto", ["Dense(2)", "[CLS]", "--head tokens"]),
        ("mlm", "best_model.h5", "classification", ["no Keras task layer", "--head classification"]),
    ],
)
def test_an_ambiguous_task_layer_is_refused(name, file, head, facts, tmp_path):
    folder_with(tmp_path, name, file)
    said = not_converted(tmp_path, *facts, head=head)
    assert head == "auto" or not all(choice in said for choice in CHOICES)


@pytest.mark.parametrize(
    ("layer", "facts"),
    [
        ("lambda_3", ["dense", "lambda_3", *CHOICES]),
        ("global_max_pooling1d", ["dense after global_max_pooling1d", "--head none"]),
        ("global_average_pooling1d_1", ["Dense(2)", "masked mean", "one output"]),
    ],
)
def test_layers_before_the_last(layer, facts, tmp_path):
    path = folder_with(tmp_path, "classification", "best_model.h5") / "best_model.h5"
    with h5py.File(path, "r+") as file:
        file.move("CLS-token", layer)
        names = [name.decode() if isinstance(name, bytes) else name for name in file.attrs["layer_names"]]
        file.attrs["layer_names"] = text_list([layer if name == "CLS-token" else name for name in names])
    not_converted(tmp_path, *facts)


def add_layer_after(path: Path, layer: str) -> None:
    """A layer without weights at the end of a model's weights."""
    with h5py.File(path, "r+") as file:
        file.attrs["layer_names"] = text_list([*map(str, file.attrs["layer_names"]), layer])
        file.create_group(layer).attrs["weight_names"] = text_list([])


@pytest.mark.parametrize(("name", "head"), [("classification", "classification"), ("tokens", "tokens")])
def test_layers_after_the_dense(name, head, tmp_path):
    path = folder_with(tmp_path, name, "best_model.h5") / "best_model.h5"
    original = path.read_bytes()
    for layer, facts in [
        ("lambda", CHOICES),
        ("cross_entropy_loss", CHOICES),
        ("global_average_pooling1d", ["after dense", "--head none"]),
        ("global_max_pooling1d", ["after dense", "--head none"]),
    ]:
        path.write_bytes(original)
        add_layer_after(path, layer)
        not_converted(tmp_path, layer, "dense", *facts)
    not_converted(tmp_path, "global_max_pooling1d", "after dense", head=head)
    for number, (layer, chosen) in enumerate([("lambda", head), ("dropout_3", "auto")]):
        path.write_bytes(original)
        add_layer_after(path, layer)
        report = convert(tmp_path / "legacy", tmp_path / f"output{number}", head=chosen, verify=True)
        assert "not in the file" in report.rows["its activation"]


def edit_model_config(path: Path, change) -> None:
    """Change the layers, by name, in the configuration of a model that was saved whole."""
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        change({layer["name"]: layer for layer in config["config"]["layers"]})
        file.attrs["model_config"] = json.dumps(config)


def applied_to(layer: str):
    return lambda layers: layers["dense"].update(inbound_nodes=[[[layer, 0, 0, {}]]])


@pytest.mark.parametrize(
    ("name", "change", "facts"),
    [
        ("regression", applied_to("Embedding-Norm"), ["dense", "Embedding-Norm", "--head none"]),
        ("regression", lambda layers: layers["dense"].update(inbound_nodes=[]), ["dense", *CHOICES]),
        ("regression", lambda layers: layers["CLS-token"].update(class_name="Flatten"), ["dense", "CLS-token"]),
        ("pooler", lambda layers: layers["Pooler-Dense"]["config"].update(activation="mish"), ["Pooler-Dense", "mish"]),
    ],
)
def test_the_configuration_of_a_whole_model_is_checked(name, change, facts, tmp_path):
    path = folder_with(tmp_path, name, "whole_model.h5") / "whole_model.h5"
    edit_model_config(path, change)
    not_converted(tmp_path, "whole_model.h5", *facts)


def test_the_activation_is_unknown_if_a_layer_follows(tmp_path):
    """A Dense(1) without an activation is a regression only if it is the last layer."""
    path = folder_with(tmp_path, "regression", "whole_model.h5") / "whole_model.h5"
    assert json.loads((convert(tmp_path / "legacy", tmp_path / "last").output / "config.json").read_text())[
        "problem_type"
    ]
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        layer = {"class_name": "Activation", "config": {"name": "last"}, "inbound_nodes": [[["dense", 0, 0, {}]]]}
        config["config"]["layers"].append(layer)
        file.attrs["model_config"] = json.dumps(config)
        weights = file["model_weights"]
        weights.attrs["layer_names"] = text_list([*map(str, weights.attrs["layer_names"]), "last"])
        weights.create_group("last").attrs["weight_names"] = text_list([])
    report = convert(tmp_path / "legacy", tmp_path / "followed", head="classification")
    assert "problem_type" not in json.loads((report.output / "config.json").read_text())


def test_a_mask_that_the_file_tells_is_believed(tmp_path):
    """No --family changes the file's mask."""
    folder_with(tmp_path, "unilm", "best_model.h5")
    not_converted(tmp_path, "RoFormer-GPT", "UniLM's mask", family="gpt")
    convert(tmp_path / "legacy", tmp_path / "output", family="roformer", verify=True)
    config = json.loads((tmp_path / "output" / "config.json").read_text())
    assert (config["architectures"], config["is_decoder"], config["prefix_lm"]) == (["RoFormerForCausalLM"], True, True)
    for path in (tmp_path / "legacy", tmp_path / "output"):
        shutil.rmtree(path)
    folder_with(tmp_path, "classification", "best_model.h5")
    not_converted(tmp_path, "RoFormer-GPT", "both directions", family="gpt")


def rename_layer(path: Path, old: str, new: str) -> None:
    """Give a layer without weights another name."""
    with h5py.File(path, "r+") as file:
        names = map(str, file.attrs["layer_names"])
        file.attrs["layer_names"] = text_list([new if name == old else name for name in names])
        file.move(old, new)


@pytest.mark.parametrize("name", ["Attention-Mask", "Attention-PUniLM-Mask"])
def test_a_mask_that_its_name_does_not_tell(name, tmp_path):
    """Other versions of bert4keras call the layers of both masks Attention-Mask."""
    folder = folder_with(tmp_path, "unilm", "best_model.h5")
    convert(folder, tmp_path / "expected")
    rename_layer(folder / "best_model.h5", "Attention-UniLM-Mask", name)
    for application in ({}, {"application": "encoder"}):
        edit_config(folder, **application)
        not_converted(tmp_path, name, "bert_config.json", '"application": "lm"', '"application": "unilm"')
        with refused(CheckpointError, name):
            info(folder)
    edit_config(folder, application="unilm")
    convert(folder, tmp_path / "output", verify=True)
    found, expected = (json.loads((tmp_path / to / "config.json").read_text()) for to in ("output", "expected"))
    assert found == expected and found["prefix_lm"]
    edit_config(folder, application=...)
    convert(folder, tmp_path / "causal", family="gpt")
    config = json.loads((tmp_path / "causal" / "config.json").read_text())
    assert (config["is_decoder"], config.get("prefix_lm", False)) == (True, False)


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        (
            "Transformer-0-MultiHeadSelfAttention-Add",
            "Transformer-0-MultiHeadSelfAttention-Attention-Bias",
            ["residual_attention_scores"],
        ),
        ("Embedding-Segment", None, ["shared_segment_embeddings"]),
        ("Embedding-Rotary-Position", None, ["Embedding-Rotary-Position"]),
    ],
)
def test_layers_that_compute_something_else(old, new, facts, tmp_path):
    path = folder_with(tmp_path, "unilm", "best_model.h5") / "best_model.h5"
    if new:
        rename_layer(path, old, new)
    else:
        with h5py.File(path, "r+") as file:
            drop_layer(file, old)
    not_converted(tmp_path, path.name, *facts)


@pytest.mark.parametrize("field", ["residual_attention_scores", "shared_segment_embeddings"])
def test_arguments_that_bert4keras_reads_from_the_configuration(field, tmp_path):
    folder = shutil.copytree(LEGACY / "word", tmp_path / "legacy")
    edit_config(folder, **{field: True})
    not_converted(tmp_path, "bert_config.json", field)
    edit_config(folder, **{field: False})
    convert(folder, tmp_path / "output")


def test_a_mask_that_only_the_configuration_tells(tmp_path):
    """A checkpoint of tf.keras has no names of layers without weights, the mask's among them."""
    folder = folder_with(tmp_path, "mlm", "best_model.weights")
    config = json.loads((folder / "bert_config.json").read_text())
    (folder / "bert_config.json").write_text(json.dumps(config | {"application": "unilm"}))
    report = convert(folder, tmp_path / "output", verify=True)
    saved = json.loads((tmp_path / "output" / "config.json").read_text())
    assert (saved["architectures"], saved["is_decoder"], saved["prefix_lm"]) == (["RoFormerForCausalLM"], True, True)
    assert_states(report.rows["task layer"], "UniLM's mask")


def test_a_nested_model_does_not_show_its_mask(tmp_path):
    """Keras' HDF5 lists its layers with weights only; those around it have names."""
    folder = folder_with(tmp_path, "nested", "best_model.h5")
    named = shutil.copytree(folder, tmp_path / "roformer-gpt")
    for place in (folder, named):
        convert(place, tmp_path / "output", head="classification", force=True)
        config = json.loads((tmp_path / "output" / "config.json").read_text())
        assert config.get("is_decoder", False) == (place is named)


def test_a_dense_over_the_hidden_states_beside_an_unused_pooler(tmp_path):
    path = folder_with(tmp_path, "pooler", "whole_model.h5") / "whole_model.h5"
    edit_model_config(path, applied_to("Transformer-0-FeedForward-Norm"))
    report = convert(tmp_path / "legacy", tmp_path / "output", verify=True)
    assert report.rows["task layer"] == "dense: Dense(3) over every token" and "pooler" in report.extras


def test_head_is_one_of_its_choices_and_for_keras_only(tmp_path):
    with refused(CheckpointError, "'nonsense'", *HEADS):
        convert(LEGACY / "word", tmp_path / "output", head="nonsense")
    with refused(CheckpointError, LEGACY / "word" / "bert_model.ckpt", "no Keras task layer", "--head triplet"):
        convert(LEGACY / "word", tmp_path / "output", head="triplet")


# Names that other versions of Keras give.


def rename_weights(path: Path, rename) -> None:
    """Give a layer's weights other names; `rename(layer, weight)`, in the layer's order."""
    with h5py.File(path, "r+") as file:
        for layer, group in file.items():
            names = [name.decode() if isinstance(name, bytes) else name for name in group.attrs["weight_names"]]
            renamed = [rename(layer, name) for name in names]
            for old, new in zip(names, renamed, strict=True):
                if old != new:
                    group.move(old, new)
            if renamed:
                group.attrs["weight_names"] = text_list(renamed)


def test_names_of_stand_alone_keras(tmp_path):
    """Its dense layers are numbered through the whole model, and a layer that is built twice gets a number itself."""
    expected = KerasHDF5(FIXTURES / "classification" / "best_model.h5")
    path = folder_with(tmp_path, "classification", "best_model.h5") / "best_model.h5"
    numbers = iter(range(8, 1000))

    def rename(layer: str, weight: str) -> str:
        parts = weight.split("/")
        if len(parts) == 3:
            number = next(numbers) if parts[2].startswith("kernel") else rename.number
            rename.number = number
            return f"{layer}_1/dense_{number}/{parts[2]}"
        return weight.replace("dense/", "dense_1/") if layer == "dense" else weight

    rename_weights(path, rename)
    found = KerasHDF5(path)
    body = {name for name in expected.entries if name.startswith("bert/")}
    assert body <= found.entries.keys()
    assert all(np.array_equal(found.read(name), expected.read(name)) for name in body)
    convert(tmp_path / "legacy", tmp_path / "output", verify=True)


def test_long_lists_of_names_come_in_pieces(tmp_path):
    path = folder_with(tmp_path, "mlm", "best_model.h5") / "best_model.h5"
    with h5py.File(path, "r+") as file:
        names = list(file.attrs["layer_names"])
        del file.attrs["layer_names"]
        for i in range(0, len(names), 5):
            file.attrs[f"layer_names{i // 5}"] = text_list([str(name) for name in names[i : i + 5]])
    convert(tmp_path / "legacy", tmp_path / "output", verify=True)


def test_a_bias_of_the_language_model_as_older_versions_name_it(tmp_path):
    path = folder_with(tmp_path, "mlm", "best_model.h5") / "best_model.h5"
    rename_weights(path, lambda layer, weight: "MLM-Bias/bias:0" if layer == "MLM-Bias" else weight)
    convert(tmp_path / "legacy", tmp_path / "output", verify=True)


# HDF5 that is damaged, or something else.


def replace_dataset(file, place: str, **arguments) -> None:
    array = file[place][()]
    del file[place]
    file.create_dataset(place, **{"data": array} | arguments)


def unlist_layer(file, layer: str) -> None:
    names = [str(name) for name in file.attrs["layer_names"] if str(name) != layer]
    file.attrs["layer_names"] = text_list(names)


def drop_layer(file, layer: str) -> None:
    unlist_layer(file, layer)
    del file[layer]


TOKENS = "Embedding-Token/Embedding-Token/embeddings:0"
GAMMA = "Embedding-Norm/Embedding-Norm/gamma:0"

SPOILT = {
    "group missing": (lambda file: file.__delitem__("dense"), ["damaged", "dense"]),
    "weight missing": (lambda file: file.__delitem__(GAMMA), ["damaged", "gamma:0"]),
    "layer missing": (
        lambda file: drop_layer(file, "Transformer-0-FeedForward-Norm"),
        ["bert/encoder/layer_0/output/LayerNorm/gamma"],
    ),
    "no embeddings": (lambda file: drop_layer(file, "Embedding-Token"), ["no layer Embedding-Token"]),
    "not a number": (
        lambda file: file[GAMMA].write_direct(np.full(16, np.nan, "f4")),
        ["finite", "bert/embeddings/LayerNorm/gamma"],
    ),
    "infinite": (lambda file: file[TOKENS].__setitem__((3, 4), -np.inf), ["finite", "bert/embeddings/word_embeddings"]),
    "newer format": (
        lambda file: file.attrs.__delitem__("layer_names"),
        ["layer_names", ".weights.h5", "save the weights again"],
    ),
    "shape": (
        lambda file: replace_dataset(file, GAMMA, data=np.ones(7, "f4")),
        ["bert/embeddings/LayerNorm/gamma", (7,), (16,)],
    ),
    "integers": (
        lambda file: replace_dataset(file, GAMMA, data=np.ones(16, "i4")),
        ["bert/embeddings/LayerNorm/gamma", "int32"],
    ),
    "unknown weight": (lambda file: add_weight(file, "Embedding-Norm", "delta:0"), ["Embedding-Norm", "delta:0"]),
    "two kernels": (lambda file: add_weight(file, "dense", "dense/x/kernel:0"), ["dense", "--head none"]),
    "gated": (
        lambda file: add_weight(file, "Transformer-0-FeedForward", "dense_2/kernel:0"),
        ["dense_2/kernel:0", "Transformer-0-FeedForward"],
    ),
    "unknown layer": (lambda file: add_layer(file, "lstm", "kernel:0"), ["dense", "lstm", "--head none"]),
    "two encoders": (
        lambda file: add_layer(file, "B-Embedding-Token", "embeddings:0"),
        ["2 models", "Embedding-Token"],
    ),
}


def add_weight(file, layer: str, name: str) -> None:
    names = [str(name) for name in file[layer].attrs["weight_names"]]
    file[layer].create_dataset(name, data=np.ones(3, "f4"))
    file[layer].attrs["weight_names"] = text_list([*names, name])


def add_layer(file, layer: str, weight: str) -> None:
    file.attrs["layer_names"] = text_list([*map(str, file.attrs["layer_names"]), layer])
    file.create_group(layer).attrs["weight_names"] = text_list([])
    add_weight(file, layer, weight)


@pytest.mark.parametrize("name", SPOILT)
def test_spoilt_hdf5(name, tmp_path):
    change, facts = SPOILT[name]
    path = folder_with(tmp_path, "classification", "best_model.h5") / "best_model.h5"
    with h5py.File(path, "r+") as file:
        change(file)
    not_converted(tmp_path, "best_model.h5", *facts)


def test_hdf5_that_is_truncated(tmp_path):
    path = folder_with(tmp_path, "triplet", "best_model.h5") / "best_model.h5"
    content = path.read_bytes()
    for share in (0.001, 0.05, 0.5, 0.99):
        path.write_bytes(content[: max(int(len(content) * share), 9)])
        not_converted(tmp_path, "best_model.h5", "damaged")


def test_hdf5_of_other_layouts_has_the_same_numbers(tmp_path):
    """h5py reads chunks, compression and the other byte order."""
    path = folder_with(tmp_path, "triplet", "best_model.h5") / "best_model.h5"
    expected = {name: KerasHDF5(path).read(name) for name in KerasHDF5(path).entries}
    with h5py.File(path, "r+") as file:
        replace_dataset(file, TOKENS, compression="gzip")
        replace_dataset(file, GAMMA, data=file[GAMMA][()].astype(">f4"))
    found = KerasHDF5(path)
    assert all(np.array_equal(found.read(name), array) for name, array in expected.items())


def test_a_file_of_no_format(tmp_path):
    folder = folder_with(tmp_path, "triplet", "nothing")
    (folder / "best_model.h5").write_bytes(b"no HDF5")
    not_converted(tmp_path, "no weights", "TensorFlow", "HDF5", "model.safetensors")
    not_converted(tmp_path, "best_model.h5", "HDF5", checkpoint="best_model.h5")


def test_other_relative_positions_than_nezhas(tmp_path):
    path = folder_with(tmp_path, "wonezha", "best_model.h5") / "best_model.h5"
    place = "Embedding-Relative-Position/Embedding-Relative-Position/embeddings:0"
    with h5py.File(path, "r+") as file:
        file[place][3, 4] += 0.01
    not_converted(tmp_path, "relative positions", "NEZHA")
    with h5py.File(path, "r+") as file:
        replace_dataset(file, place, data=np.ones((65, 8), "f4"))
    not_converted(tmp_path, "relative positions", (65, 8), (129, 8))


def test_without_h5py(run, tmp_path, monkeypatch):
    folder = folder_with(tmp_path, "triplet", "best_model.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)  # so that it cannot be imported
    code, _, err = run("convert", folder, tmp_path / "output")
    assert code == 1 and "pip install h5py" in err and err.count("\n") == 1 and not (tmp_path / "output").exists()


# tf.keras' checkpoints.


TRIPLET = FIXTURES / "triplet" / "best_model.weights"
GRAPH = TensorBundle(TRIPLET).read_object_graph()


@pytest.mark.parametrize("at", [40, -1])
def test_a_changed_byte_of_the_graph(tmp_path, at):
    folder = folder_with(tmp_path, "triplet", "best_model.weights")
    data = folder / "best_model.weights.data-00000-of-00001"
    entry = TensorBundle(folder / "best_model.weights").object_graph
    content = bytearray(data.read_bytes())
    content[entry.offset + at if at >= 0 else entry.offset + entry.size + at] ^= 1
    data.write_bytes(content)
    not_converted(tmp_path, "best_model.weights.index", "object graph", "wrong", head="triplet")


class WithGraph(KerasBundle):
    """A checkpoint of tf.keras with another object graph."""

    def __init__(self, graph: bytes):
        self.graph = graph
        super().__init__(TRIPLET)

    def read_object_graph(self) -> bytes:
        return self.graph


def reference(number: int, name: str) -> bytes:
    return write_field(1, BYTES, write_field(1, VARINT, number) + write_field(2, BYTES, name.encode()))


def graph_of(*nodes: bytes) -> bytes:
    return b"".join(write_field(1, BYTES, node) for node in nodes)


@pytest.mark.parametrize(
    ("graph", "fact"),
    [
        (graph_of(b""), "no Keras models"),
        (graph_of(reference(1, "layer-0"), b""), "no layer Embedding-Token"),
        (
            graph_of(reference(1, "a") + reference(2, "b"), reference(3, "layer-0"), reference(3, "layer-0"), b""),
            "2 Keras models",
        ),
    ],
)
def test_object_graphs_of_other_models(graph, fact):
    with refused(CheckpointError, f"{TRIPLET}.index", fact):
        WithGraph(graph)


def test_a_checkpoint_that_has_the_model_below_its_root():
    """tf.train.Checkpoint(model=…) makes one."""
    model, *others = (node for _, node in read_fields(GRAPH))
    fields = [field for field in read_fields(model) if not str(field[1]).endswith("root'")]
    model = b"".join(write_field(number, BYTES, value) for number, value in fields)
    root = reference(1 + len(others), "model") + reference(2 + len(others), "save_counter")
    assert WithGraph(graph_of(root, *others, model, b"")).entries.keys() == KerasBundle(TRIPLET).entries.keys()
