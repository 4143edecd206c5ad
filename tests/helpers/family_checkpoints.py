"""A small checkpoint of every family, written in every format from the same numbers.

A family's numbers are drawn once, under the names of the released checkpoints (`variables`). `state_dict` renames them
as PyTorch does, and `keras_layers` groups them as bert4keras does. Neither uses the families of the package.
"""

import json
import re
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import torch
from safetensors.torch import save_file

from modeling_roformer.conversion.formats import crc32c
from modeling_roformer.conversion.formats.protocol_buffers import BYTES, VARINT, write_field, write_varint
from modeling_roformer.conversion.formats.tensor_bundle import OBJECT_GRAPH, Entry
from modeling_roformer.conversion.formats.tensor_bundle_writer import write_bundle, write_index

# Special tokens where Chinese BERT has them in another order than this package's defaults: [SEP] is 5.
ENTRIES = [
    "[PAD]",
    "[unused1]",
    "[UNK]",
    "[CLS]",
    "[MASK]",
    "[SEP]",
    "，",
    "。",
    *"明月照着远处的山和近小路听见风孩子在桥头",
    "明月",
    "听见",
]
CLS, SEP = ENTRIES.index("[CLS]"), ENTRIES.index("[SEP]")
HIDDEN, LAYERS, HEADS, INNER, LENGTH = 16, 2, 2, 24, 32
# bert4keras' own fields; none says anything of the family.
BARE = {
    "vocab_size": len(ENTRIES),
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "max_position_embeddings": LENGTH,
    "type_vocab_size": 2,
}
# Seed of each family's numbers. The decoders' are such that greedy decoding gives several tokens, and then [SEP].
SEEDS = {"roformer": 0, "gpt": 896, "sim": 307, "v2": 3, "wobert": 4, "simbert": 408, "wonezha": 6}
PREFIXES = dict.fromkeys(SEEDS, "roformer.") | {"wobert": "bert.", "simbert": "bert.", "wonezha": "nezha."}
TABLE, POOLER = "bert/embeddings/position_embeddings", "bert/pooler/dense"
_MASK_LAYERS = {"gpt": ["Attention-LM-Mask"], "sim": ["Attention-UniLM-Mask"], "simbert": ["Attention-UniLM-Mask"]}
_ATTENTION = ("query", "key", "value")


def _dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}/beta": (HIDDEN,), f"{name}/gamma": (HIDDEN,)}


@cache
def variables(family: str, with_pooler: bool = False) -> dict[str, np.ndarray]:
    """Return the variables of a family, those of its language model included, in float32.

    `with_pooler` adds a pooler to a family without one.
    """
    entries = len(ENTRIES)
    shapes = {
        "bert/embeddings/word_embeddings": (entries, HIDDEN),
        "bert/embeddings/token_type_embeddings": (2, HIDDEN),
        **({TABLE: (LENGTH, HIDDEN)} if family in ("wobert", "simbert") else {}),
        **_norm("bert/embeddings/LayerNorm"),
    }
    for i in range(LAYERS):
        layer = f"bert/encoder/layer_{i}"
        for part in (*(f"self/{name}" for name in _ATTENTION), "output/dense"):
            shapes |= _dense(f"{layer}/attention/{part}", HIDDEN, HIDDEN)
        shapes |= _norm(f"{layer}/attention/output/LayerNorm")
        shapes |= _dense(f"{layer}/intermediate/dense", HIDDEN, INNER) | _dense(f"{layer}/output/dense", INNER, HIDDEN)
        shapes |= _norm(f"{layer}/output/LayerNorm")
    if family in ("sim", "simbert"):
        shapes |= _dense(POOLER, HIDDEN, HIDDEN)
    head = "cls/predictions"
    shapes |= _dense(f"{head}/transform/dense", HIDDEN, HIDDEN) | _norm(f"{head}/transform/LayerNorm")
    shapes[f"{head}/output_bias"] = (entries,)
    if family == "v2":  # without biases, layer norms and weights of the language model
        kept = re.compile("bert/.*(_embeddings|/kernel)")
        shapes = {name: shape for name, shape in shapes.items() if kept.fullmatch(name)}
    if with_pooler:  # at the end, so that the other numbers stay the same
        shapes |= _dense(POOLER, HIDDEN, HIDDEN)
    random = np.random.default_rng(SEEDS[family])
    found = {name: random.normal(scale=0.4, size=shape).astype("f4") for name, shape in shapes.items()}
    for name in found:
        if name.endswith("/gamma"):
            found[name] += 1
    return found


def state_dict(family: str, prefix: str | None = None, with_pooler: bool = False) -> dict[str, torch.Tensor]:
    """Return the same weights under PyTorch's names, whose body begins with `prefix`, by default the family's own."""
    prefix, state = PREFIXES[family] if prefix is None else prefix, {}
    for name, array in variables(family, with_pooler).items():
        tensor = torch.from_numpy(array.T if name.endswith("/kernel") else array).clone().contiguous()
        key = re.sub("(kernel|gamma)$", "weight", re.sub("beta$", "bias", name)).replace("/", ".")
        key = key.replace("encoder.layer_", "encoder.layer.").replace("output_bias", "bias")
        key += ".weight" if key.endswith("_embeddings") else ""
        state[prefix + key.removeprefix("bert.") if name.startswith("bert/") else key] = tensor
    return state


def with_copies(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return a state dict with the second copies of tied weights, which torch.save keeps."""
    words = state[f"{prefix}embeddings.word_embeddings.weight"]
    copies = {"cls.predictions.decoder.weight": words}
    if "cls.predictions.bias" in state:
        copies["cls.predictions.decoder.bias"] = state["cls.predictions.bias"]
    return state | copies


def keras_layers(family: str) -> dict[str, dict[str, np.ndarray]]:
    """Return bert4keras' layers: name -> weights by their names in the layer, empty for a layer without weights."""
    values = variables(family)

    def dense(*names: str) -> dict[str, np.ndarray]:
        found = {}
        for number, name in enumerate(names):
            inner = f"dense_{number}/" if number else "dense/" if len(names) > 1 else ""
            found |= {
                f"{inner}{kind}": values[key] for kind in ("kernel", "bias") if (key := f"{name}/{kind}") in values
            }
        return found

    def norm(name: str) -> dict[str, np.ndarray]:
        return {kind: values[key] for kind in ("beta", "gamma") if (key := f"{name}/{kind}") in values}

    def table(name: str) -> dict[str, np.ndarray]:
        return {"embeddings": values[f"bert/embeddings/{name}_embeddings"]}

    layers = {"Input-Token": {}, "Input-Segment": {}, "Embedding-Token": table("word")}
    layers |= {"Embedding-Segment": table("token_type"), "Embedding-Token-Segment": {}}
    if TABLE in values:
        layers["Embedding-Position"] = table("position")
    layers["Embedding-Norm"] = norm("bert/embeddings/LayerNorm")
    layers |= {name: {} for name in _MASK_LAYERS.get(family, ())}
    if family == "wonezha":
        layers["Embedding-Relative-Position"] = {"embeddings": relative_positions()}
    elif TABLE not in values:
        layers["Embedding-Rotary-Position"] = {}
    for i in range(LAYERS):
        name, layer = f"Transformer-{i}-", f"bert/encoder/layer_{i}"
        attention = [f"{layer}/attention/self/{part}" for part in _ATTENTION]
        layers[f"{name}MultiHeadSelfAttention"] = dense(*attention, f"{layer}/attention/output/dense")
        layers[f"{name}MultiHeadSelfAttention-Add"] = {}
        layers[f"{name}MultiHeadSelfAttention-Norm"] = norm(f"{layer}/attention/output/LayerNorm")
        layers[f"{name}FeedForward"] = dense(f"{layer}/intermediate/dense", f"{layer}/output/dense")
        layers[f"{name}FeedForward-Add"] = {}
        layers[f"{name}FeedForward-Norm"] = norm(f"{layer}/output/LayerNorm")
    if f"{POOLER}/kernel" in values:
        layers |= {"Pooler": {}, "Pooler-Dense": dense(POOLER)}
    if family == "v2":
        return layers | {"Output-MLM-Dropout": {}, "Output-MLM-Activation": {}}
    layers["MLM-Dense"] = dense("cls/predictions/transform/dense")
    layers["MLM-Norm"] = norm("cls/predictions/transform/LayerNorm")
    return layers | {"MLM-Bias": {"beta": values["cls/predictions/output_bias"]}, "MLM-Activation": {}}


def relative_positions() -> np.ndarray:
    """Return NEZHA's table of sines and cosines, which Keras saves with the weights."""
    width, farthest = HIDDEN // HEADS, 64
    angles = np.arange(2 * farthest + 1)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(-1, width).astype("f4")


def write_hdf5(path: Path, layers: dict[str, dict[str, np.ndarray]]) -> None:
    """Write layers as `model.save_weights("best_model.h5")` does."""
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [name.encode() for name in layers]
        for name, weights in layers.items():
            group = file.create_group(name)
            group.attrs["weight_names"] = [f"{name}/{weight}:0".encode() for weight in weights]
            for weight, array in weights.items():
                group[f"{name}/{weight}:0"] = array


def write_tf_keras(prefix: Path, layers: dict[str, dict[str, np.ndarray]]) -> None:
    """Write layers as `model.save_weights("best_model.weights")` of tf.keras does: a TensorBundle with its objects."""
    sublayers = {
        "MultiHeadSelfAttention": ("q_dense", "k_dense", "v_dense", "o_dense"),
        "FeedForward": ("i0_dense", "o_dense"),
    }
    nodes: list[list[bytes]] = [[]]  # the fields of each node's message; the root is the first
    tensors: dict[str, np.ndarray] = {}

    def child(parent: int, name: str) -> int:
        nodes.append([])
        reference = write_field(1, VARINT, len(nodes) - 1) + write_field(2, BYTES, name.encode())
        nodes[parent].append(write_field(1, BYTES, reference))
        return len(nodes) - 1

    for number, (layer, weights) in enumerate(layers.items()):
        node, inner = child(0, f"layer-{number}"), {}
        for weight, array in weights.items():
            folder, _, kind = weight.rpartition("/")
            if folder and folder not in inner:
                name = sublayers[layer.rpartition("-")[2]][len(inner)]
                inner[folder] = child(node, name), f"{name}/"
            parent, place = inner.get(folder, (node, ""))
            key = f"layer-{number}/{place}{kind}/.ATTRIBUTES/VARIABLE_VALUE"
            tensors[key] = array
            fields = ("VARIABLE_VALUE", f"{layer}/{weight}", key)
            attribute = b"".join(write_field(i, BYTES, text.encode()) for i, text in enumerate(fields, 1))
            nodes[child(parent, kind)].append(write_field(2, BYTES, attribute))
    write_bundle(prefix, tensors.items())
    graph = b"".join(write_field(1, BYTES, b"".join(node)) for node in nodes)
    _add_object_graph(prefix, tensors, graph)


def _add_object_graph(prefix: Path, tensors: dict[str, np.ndarray], graph: bytes) -> None:
    """Append a string tensor, which `write_bundle` does not write, to a checkpoint of these tensors."""
    data = prefix.with_name(f"{prefix.name}.data-00000-of-00001")
    entries, offset = [], 0
    for name, array in tensors.items():
        crc = crc32c.masked(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        entries.append(Entry(name, "float32", array.shape, array.nbytes, offset, 0, crc))
        offset += array.nbytes
    length = len(graph).to_bytes(4, "little")
    length_sum = crc32c.masked(length).to_bytes(4, "little")
    string = write_varint(len(graph)) + length_sum + graph
    crc = crc32c.masked(length + length_sum + graph)
    with open(data, "ab") as file:
        file.write(string)
    write_index(prefix, [*entries, Entry(OBJECT_GRAPH, "string", (), len(string), offset, 0, crc)], 1)


# Format -> what is before the names of all tensors, and the prefix of the body's names, None for the family's own.
PYTORCH = {
    "bin": ("", None),
    "safetensors": ("", None),
    "bin of module.": ("module.", None),
    "safetensors of model.": ("model.", None),
    "bin without a prefix": ("", ""),
    "safetensors of bert.": ("", "bert."),
}
TENSORFLOW = ("tensorflow", "hdf5", "tf.keras")
FORMATS = (*TENSORFLOW, *PYTORCH)


def write_checkpoint(
    folder: Path,
    family: str,
    form: str,
    config: dict[str, object],
    config_name: str = "bert_config.json",
    **pooler: bool,
) -> Path:
    """Write a family's checkpoint in one of `FORMATS`, with `config` in `config_name`, and vocab.txt."""
    folder.mkdir(parents=True)
    (folder / config_name).write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("".join(f"{entry}\n" for entry in ENTRIES), encoding="utf-8", newline="\n")
    if form == "tensorflow":
        write_bundle(folder / "bert_model.ckpt", variables(family, **pooler).items())
    elif form == "hdf5":
        write_hdf5(folder / "best_model.h5", keras_layers(family))
    elif form == "tf.keras":
        write_tf_keras(folder / "best_model.weights", keras_layers(family))
    else:
        wrapper, prefix = PYTORCH[form]
        prefix = PREFIXES[family] if prefix is None else prefix
        state = state_dict(family, prefix, **pooler)
        if form.startswith("bin") or family == "v2":  # whose language model has no other tensor
            state = {key: tensor.clone() for key, tensor in with_copies(state, prefix).items()}
        state = {wrapper + key: tensor for key, tensor in state.items()}
        if form.startswith("bin"):
            torch.save(state, folder / "pytorch_model.bin")
        else:
            save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
