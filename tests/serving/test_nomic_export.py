"""`roformer export-nomic-bert`: the folder's numbers by the formula of `nomic_bert`, its files, and what is refused."""

import json
import math
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers.absent_package import run_without_package
from helpers.command_line import ROFORMER
from helpers.exporting import saved
from helpers.messages import refused
from models.cases import VARIANTS
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModel, AutoTokenizer, JinaEmbeddingsV3Config, JinaEmbeddingsV3Model, NomicBertModel

from modeling_roformer import RoFormerModel, RoFormerTokenizer
from modeling_roformer.files.reading import read_json
from modeling_roformer.model_cards import write_card
from modeling_roformer.model_cards.servers import NOMIC_BERT, ONNX, servers_of
from modeling_roformer.serving.errors import ServingError
from modeling_roformer.serving.nomic_export import export_nomic_bert
from modeling_roformer.serving.vectors.encoder import TextEncoder

TEXTS = ["明月照着山路，孩子在桥头数星星。", "山", "今天 weather 很好"]
SIM = {"is_decoder": True, "prefix_lm": True, "add_pooling_layer": True, "pooler_activation": "linear"}
TANH, RELU = torch.nn.Tanh(), torch.nn.ReLU()
# Class, fields of the configuration, pooling of sentence-transformers, and the activation of a Dense after it.
FITTING = {
    "masked": ("RoFormerForMaskedLM", {}, None, None),
    "another theta": ("RoFormerModel", {"rope_parameters": {"rope_theta": 500.0}}, None, None),
    "with a pooler": ("RoFormerModel", {"add_pooling_layer": True, "pooler_activation": "tanh"}, None, None),
    "Sim": ("RoFormerForCausalLM", SIM, None, None),
    "Sim with modules": ("RoFormerForCausalLM", SIM, "cls", None),
    "bi": ("RoFormerForTripletMatching", {"triplet_scorer": "bi"}, None, None),
    "cls": ("RoFormerModel", {}, "cls", None),
    "mean": ("RoFormerModel", {}, "mean", TANH),
}


def saved_with_modules(folder, pooling, activation=None, **fields):
    """Save a small model with the modules of sentence-transformers, of which Dense needs an activation."""
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    architecture = fields.pop("architecture", "RoFormerModel")
    saved(folder, architecture, **fields)
    width = read_json(folder / "config.json")["hidden_size"]
    torch.manual_seed(1)
    parts = {"Pooling": modules.Pooling(width, pooling)}
    if activation is not None:
        parts["Dense"] = modules.Dense(width, 8, activation_function=activation)
    parts["Normalize"] = modules.Normalize()
    names = ["Transformer", *parts]
    listed = [
        {"type": f"sentence_transformers.models.{name}", "path": name * (name != "Transformer")} for name in names
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    for name, part in parts.items():
        (folder / name).mkdir()
        part.save(str(folder / name))
    return folder


def fitting(folder, name):
    architecture, fields, pooling, activation = FITTING[name]
    if pooling is None:
        return saved(folder, architecture, **fields)
    return saved_with_modules(folder, pooling, activation, architecture=architecture, **fields)


def states_of(folder, ids):
    """Return the last hidden states by the formula of `nomic_bert` in float64, (s, width), from a folder's files."""
    config, weights = read_json(folder / "config.json"), load_file(folder / "model.safetensors")
    weights = {name: tensor.double() for name, tensor in weights.items()}
    s, width, heads = len(ids), config["n_embd"], config["n_head"]
    d = width // heads

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + config["layer_norm_epsilon"]).sqrt()
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    frequencies = torch.tensor([config["rotary_emb_base"] ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angles = torch.arange(s, dtype=torch.float64)[:, None, None] * frequencies

    def rotate(x):
        first, second = x[..., : d // 2], x[..., d // 2 :]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "emb_ln")
    for layer in (f"encoder.layers.{i}" for i in range(config["n_layer"])):
        query, key, value = linear(x, f"{layer}.attn.Wqkv").unflatten(-1, (3, heads, d)).unbind(1)
        scores = torch.einsum("qhd,khd->hqk", rotate(query), rotate(key)) / math.sqrt(d)
        joined = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1)
        x = norm(x + linear(joined, f"{layer}.attn.out_proj"), f"{layer}.norm1")
        inner = linear(x, f"{layer}.mlp.fc1")
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        x = norm(x + linear(inner, f"{layer}.mlp.fc2"), f"{layer}.norm2")
    return x


def vector_of(folder, states):
    """Return the vector of a text by the modules that a folder lists, as servers read them."""
    fields = read_json(folder / "1_Pooling" / "config.json")
    (mode,) = [name for name, chosen in fields.items() if chosen is True]
    vector = {"pooling_mode_cls_token": states[0], "pooling_mode_mean_tokens": states.mean(0)}[mode]
    for module in json.loads((folder / "modules.json").read_text())[2:]:
        if module["type"] == "sentence_transformers.models.Normalize":
            vector = vector / vector.norm()
            continue
        assert module["type"] == "sentence_transformers.models.Dense"
        dense, settings = (
            load_file(folder / module["path"] / "model.safetensors"),
            folder / module["path"] / "config.json",
        )
        vector = dense["linear.weight"].double() @ vector + dense["linear.bias"].double()
        activation = read_json(settings)["activation_function"].rpartition(".")[2]
        vector = {"Identity": lambda x: x, "Tanh": torch.tanh}[activation](vector)
    return vector


@pytest.mark.parametrize("name", FITTING)
def test_hidden_states_and_vectors_are_those_of_the_model(name, tmp_path):
    folder, exported = fitting(tmp_path / "model", name), tmp_path / "out"
    export_nomic_bert(folder, exported)
    tokenizer = Tokenizer.from_file(str(exported / "tokenizer.json"))
    model = RoFormerModel.from_pretrained(folder, dtype=torch.float64, add_pooling_layer=False).eval()
    expected_vectors = TextEncoder(folder, device="cpu")(TEXTS)
    for text, expected_vector in zip(TEXTS, expected_vectors, strict=True):
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            expected = model(torch.tensor([ids])).last_hidden_state[0]
        found = states_of(exported, ids)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
        np.testing.assert_allclose(vector_of(exported, found), expected_vector, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_the_same_architecture_in_transformers_has_the_same_states_at_4096_tokens(tmp_path):
    export_nomic_bert(saved(tmp_path / "model", "RoFormerModel", num_hidden_layers=2), tmp_path / "out")
    fields, weights = read_json(tmp_path / "out" / "config.json"), load_file(tmp_path / "out" / "model.safetensors")
    shared = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    shared += ("type_vocab_size", "layer_norm_eps", "pad_token_id")
    config = JinaEmbeddingsV3Config(
        **{name: fields[name] for name in shared},
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": fields["rope_theta"]},
    )
    names = {"emb_ln": "embeddings.LayerNorm", "encoder.": "", "attn.out_proj": "self_attn.o_proj"}
    names |= {"norm1": "post_attention_layernorm", "norm2": "post_mlp_layernorm"}
    state = {}
    for name, tensor in weights.items():
        for old, new in names.items():
            name = name.replace(old, new)
        parts = tensor.chunk(3) if "Wqkv" in name else [tensor]
        state |= {name.replace("attn.Wqkv", f"self_attn.{k}_proj"): part for k, part in zip("qkv", parts, strict=False)}
    peer = JinaEmbeddingsV3Model(config, add_pooling_layer=False).double().eval()
    peer.load_state_dict(state)
    ids = torch.randint(7, 130, (1, 4096), generator=torch.Generator().manual_seed(0))
    model = RoFormerModel.from_pretrained(tmp_path / "model", dtype=torch.float64).eval()
    with torch.no_grad():
        torch.testing.assert_close(peer(ids).last_hidden_state, model(ids).last_hidden_state, atol=2e-4, rtol=0)


def test_fields_that_the_servers_read(tmp_path):
    folder = saved(tmp_path / "model", "RoFormerModel", layer_norm_eps=1e-5, max_position_embeddings=300)
    for options, length in (({}, 300), ({"max_length": 4096}, 4096)):
        export_nomic_bert(folder, tmp_path / "out", force=True, **options)
        config = read_json(tmp_path / "out" / "config.json")
        assert "max_position_embeddings" not in config and config["n_positions"] == length
        assert config["max_trained_positions"] == length  # vLLM reads no more tokens than these
        assert read_json(tmp_path / "out" / "sentence_bert_config.json")["max_seq_length"] == length
        settings = read_json(tmp_path / "out" / "tokenizer_config.json")
        assert settings["model_max_length"] == length and settings["cls_token"] == "[CLS]"
    expected = {"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "activation_function": "gelu"}
    expected |= {"n_embd": 16, "n_head": 2, "n_inner": 16, "n_layer": 1, "type_vocab_size": 2, "pad_token_id": 0}
    expected |= {"layer_norm_epsilon": 1e-5, "rope_theta": 10000.0, "rotary_emb_base": 10000.0}
    expected |= {"rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None}
    expected |= dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), True) | {"prenorm": False}
    assert {name: config[name] for name in expected} == expected
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert not write_card(tmp_path / "out").facts
    assert "vllm serve out --runner pooling" in card and "text-embeddings-router --model-id out" in card


def test_transformers_refuses_the_folder(tmp_path):
    """Its own NomicBert has gates, which it would initialise at random."""
    export_nomic_bert(saved(tmp_path / "model", "RoFormerModel"), tmp_path / "out")
    for kind in (AutoModel, NomicBertModel):
        with pytest.raises(KeyError, match="transformers cannot load"):
            kind.from_pretrained(tmp_path / "out")


@pytest.mark.slow
def test_without_this_package_and_a_segmenter_the_tokenizer_gives_the_same_ids(tmp_path):
    folder = saved(tmp_path / "model", "RoFormerModel")
    export_nomic_bert(folder, tmp_path / "out")
    texts = [*TEXTS, "[MASK]月", "", "ＡＢＣ　é\u2028"]
    expected = AutoTokenizer.from_pretrained(folder)(texts, return_token_type_ids=False).data
    (tmp_path / "expected.json").write_text(json.dumps([texts, expected]))
    script = """
import json, sys
sys.modules["rjieba"] = None
from transformers import AutoTokenizer
texts, expected = json.load(open("expected.json"))
found = AutoTokenizer.from_pretrained("out")(texts).data
assert {name: found[name] for name in expected} == expected, found
"""
    run_without_package(script, tmp_path)


# What is not a nomic_bert -> class, fields, and the name that the refusal states.
REFUSED = {
    "NEZHA": ("NezhaForMaskedLM", {}, "NEZHA"),
    "BERT": ("BertForMaskedLM", {}, "BERT"),
    "V2": ("RoFormerForMaskedLM", {"norm_type": "rms_norm", "use_bias": False}, "RoFormer-V2"),
    "no biases": ("RoFormerModel", {"use_bias": False}, "use_bias"),
    "linear": ("RoFormerModel", {"attention_type": "linear"}, "linear attention"),
    "values": ("RoFormerModel", {"rotary_value": True}, "rotary_value"),
    "trained": ("RoFormerModel", {"trainable_rope": True}, "trainable_rope"),
    "scaled": ("RoFormerModel", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope_type"),
    "learned": ("RoFormerModel", {"position_encoding": "learned"}, "position_encoding"),
    "relu": ("RoFormerModel", {"hidden_act": "relu"}, "hidden_act"),
    "narrow": ("RoFormerModel", {"embedding_size": 8}, "embeddings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_architectures_are_refused_with_the_command_that_serves_them(name, tmp_path):
    architecture, fields, fact = REFUSED[name]
    folder = saved(tmp_path / "model", architecture, **fields)
    with refused(ServingError, folder, fact, "roformer export-onnx --vectors"):
        export_nomic_bert(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("architecture", "fields", "vocabulary", "fact"),
    [
        ("RoFormerModel", {}, "word", "vocabulary"),
        ("RoFormerForCausalLM", {"is_decoder": True}, "character", "generates"),
        ("RoFormerForMaskedLM", {"is_decoder": True, "prefix_lm": True}, "character", "generates"),
        ("RoFormerForTripletMatching", {}, "character", "triplet_scorer"),
    ],
)
def test_models_that_no_server_of_vectors_takes_are_refused(architecture, fields, vocabulary, fact, tmp_path):
    folder = saved(tmp_path / "model", architecture, vocabulary, **fields)
    with refused(ServingError, folder, fact) as caught:
        export_nomic_bert(folder, tmp_path / "out")
    assert "export-onnx" not in str(caught.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("pooling", "activation", "fact"), [("max", None, "max"), ("cls", RELU, "ReLU")])
def test_modules_that_the_servers_do_not_have_are_refused(pooling, activation, fact, tmp_path):
    folder = saved_with_modules(tmp_path / "model", pooling, activation)
    with refused(ServingError, folder / "modules.json", "roformer export-onnx --vectors") as caught:
        export_nomic_bert(folder, tmp_path / "out")
    assert fact in str(caught.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("vocabulary", ["character", "word"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_info_and_the_card_name_vllm_exactly_where_the_export_succeeds(variant, vocabulary, tmp_path):
    family = "Nezha" if variant == "NEZHA" else "RoFormer"
    fields = {name: value for name, value in VARIANTS[variant].items() if name != "embedding_size"}
    fields |= {"embedding_size": 8} if variant == "factorised" else {}
    folder = saved(tmp_path / "model", f"{family}Model", vocabulary, **fields)
    servers = servers_of(
        read_json(folder / "config.json"), read_json(folder / "tokenizer_config.json"), vocabulary == "word"
    )
    try:
        export_nomic_bert(folder, tmp_path / "out")
    except ServingError as error:
        assert NOMIC_BERT not in servers
        assert ("roformer export-onnx --vectors" in str(error)) == (ONNX in servers)
    else:
        assert servers == [ONNX, NOMIC_BERT] and (tmp_path / "out" / "model.safetensors").is_file()
    assert servers


def test_a_tokenizer_with_more_entries_than_the_model_is_refused(tmp_path):
    folder = saved(tmp_path / "model", "RoFormerModel", vocab_size=7)
    with refused(ServingError, folder, 7, "vocab.txt"):
        export_nomic_bert(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_existing_folder_is_replaced_only_with_force(tmp_path):
    folder = saved(tmp_path / "model", "RoFormerModel")
    export_nomic_bert(folder, tmp_path / "out")
    with refused(FileExistsError, tmp_path / "out"):
        export_nomic_bert(folder, tmp_path / "out", max_length=9)
    assert read_json(tmp_path / "out" / "config.json")["n_positions"] == 1536
    export_nomic_bert(folder, tmp_path / "out", max_length=9, force=True)
    assert read_json(tmp_path / "out" / "config.json")["n_positions"] == 9
    with refused(FileExistsError, folder):
        export_nomic_bert(folder, folder, force=True)


HALF_WAY = """
import sys, time
from modeling_roformer.serving.nomic_export import export, export_nomic_bert

def stop(*arguments):
    print("half-way", flush=True)
    time.sleep(600)

export.write_config = stop
export_nomic_bert("model", "out")
"""


@pytest.mark.slow
def test_a_killed_export_leaves_no_folder_and_the_command_cleans_up(tmp_path):
    saved(tmp_path / "model", "RoFormerModel")
    process = subprocess.Popen([sys.executable, "-c", HALF_WAY], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"half-way\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=600)
    assert not (tmp_path / "out").exists() and len(list(tmp_path.glob(".out.*"))) == 1
    done = subprocess.run([ROFORMER, "export-nomic-bert", "model", "out"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "vllm serve out" in done.stdout, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]
    assert (tmp_path / "out" / "1_Pooling" / "config.json").is_file()


def test_a_vocabulary_with_words_that_are_not_segmented_fits(tmp_path):
    folder = saved(tmp_path / "model", "RoFormerModel", "word")
    RoFormerTokenizer(folder / "vocab.txt", word_segmentation=None).save_pretrained(folder)
    export_nomic_bert(folder, tmp_path / "out")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert [tokenizer.encode(text).ids for text in TEXTS] == AutoTokenizer.from_pretrained(folder)(TEXTS).input_ids
