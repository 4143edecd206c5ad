"""A push deletes the files that it replaces in the same commit, so that what was sent last is loaded."""

import json

import pytest
import torch
from helpers.exporting import write_graph
from helpers.hub_server import Blob
from helpers.messages import assert_states, refused
from transformers import AutoTokenizer

from modeling_roformer import RoFormerConfig, RoFormerModel, RoFormerTokenizer
from modeling_roformer.hub import HubError, push
from modeling_roformer.tokenization.vocabulary import VocabularyError

REPO = "somebody/model"
CONFIG = RoFormerConfig(vocab_size=9, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
SIZES = [("50GB", "5KB"), ("5KB", "50GB"), ("4KB", "8KB"), ("8KB", "4KB")]
OTHERS = [
    "model.fp16.safetensors",
    "model.bf16-00001-of-00002.safetensors",
    "model.safetensors.index.bf16.json",
    "pytorch_model.bin",
    "adapter_model.safetensors",
    "other/model.safetensors",
    "other/onnx/model.onnx",
    "model-of-mine.txt",
    "vocab.md",
]


def model_of(seed):
    torch.manual_seed(seed)
    return RoFormerModel(CONFIG)


def saved(folder, seed, size, **kwargs):
    """A folder to push; the model in it is returned."""
    model = model_of(seed)
    model.save_pretrained(folder, max_shard_size=size, **kwargs)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"今天气好"]) + "\n")
    return model


def weights(hub, revision="main"):
    return {name for name in hub.repos[REPO].files(revision) if name.startswith("model") and name not in OTHERS}


def add(hub, names):
    """Files that are in the repository already."""
    repo = hub.repos[REPO]
    repo.commit("main", repo.commits[repo.branches["main"]] | {name: Blob(b"old") for name in names}, "others")


def assert_same(model, **kwargs):
    for name, tensor in RoFormerModel.from_pretrained(REPO, **kwargs).state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


@pytest.mark.parametrize("sizes", SIZES)
def test_the_weights_pushed_last_are_loaded(hub, tmp_path, sizes):
    saved(tmp_path / "first", 1, sizes[0])
    push(tmp_path / "first", REPO)
    add(hub, OTHERS)
    model = saved(tmp_path / "second", 2, sizes[1])
    push(tmp_path / "second", REPO, commit_message="second")
    assert_same(model)
    assert weights(hub) == {path.name for path in (tmp_path / "second").glob("model*")}
    assert set(OTHERS) <= set(hub.repos[REPO].files())
    assert list(hub.repos[REPO].messages.values())[-2:] == ["others", "second"]


def test_a_variant_replaces_its_own_weights(hub, tmp_path):
    whole = saved(tmp_path / "model", 1, "50GB")
    for seed, size in ((2, "50GB"), (3, "5KB")):
        model = model_of(seed)
        model.save_pretrained(tmp_path / "model", variant="fp16", max_shard_size=size)
        push(tmp_path / "model", REPO)
    assert "model.fp16.safetensors" not in hub.repos[REPO].files()
    assert_same(whole)
    assert_same(model, variant="fp16")


def test_on_a_branch_and_in_a_pull_request(hub, tmp_path):
    first = saved(tmp_path / "first", 1, "50GB")
    push(tmp_path / "first", REPO)
    second = saved(tmp_path / "second", 2, "5KB")
    push(tmp_path / "second", REPO, create_pr=True)
    push(tmp_path / "second", REPO, revision="trial")
    assert_same(first)
    for revision in ("refs/pr/1", "trial"):
        assert_same(second, revision=revision)
        assert "model.safetensors" not in weights(hub, revision)


GRAPHS = ["model.onnx", "model.onnx_data", "onnx/model_quantized.onnx", "openvino/openvino_model.bin"]


@pytest.mark.parametrize("size", ["50GB", "5KB"])
def test_graphs_of_other_weights_are_deleted(hub, tmp_path, size):
    saved(tmp_path / "first", 1, size)
    write_graph(tmp_path / "first", external=False)
    push(tmp_path / "first", REPO)
    add(hub, [*OTHERS, *GRAPHS])
    told = []
    (tmp_path / "first" / "onnx" / "model.onnx").unlink()
    push(tmp_path / "first", REPO, tell=told.append)  # the same weights: the graphs are theirs
    graphs = {*GRAPHS, "onnx/model.onnx"}
    assert graphs <= hub.repos[REPO].files().keys() and not told
    saved(tmp_path / "second", 2, size)
    push(tmp_path / "second", REPO, tell=told.append)
    assert graphs.isdisjoint(hub.repos[REPO].files()) and set(OTHERS) <= hub.repos[REPO].files().keys()
    assert len(told) == 1
    assert_states(told[0], *graphs)


def test_a_graph_alone_replaces_the_graphs_of_another(hub, tmp_path):
    saved(tmp_path, 1, "50GB")
    (tmp_path / "model.safetensors").unlink()
    write_graph(tmp_path, external=False)
    push(tmp_path, REPO)
    add(hub, GRAPHS)
    push(tmp_path, REPO)
    assert set(GRAPHS) <= hub.repos[REPO].files().keys()
    graph = tmp_path / "onnx" / "model.onnx"
    graph.write_bytes(graph.read_bytes() + b"\x12\x01x")  # the name of the producer
    push(tmp_path, REPO)
    assert {name for name in hub.repos[REPO].files() if "onnx" in name} == {"onnx/model.onnx"}


def tokenizer_of(entries, **options):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *entries]
    return RoFormerTokenizer({word: number for number, word in enumerate(words)}, **options)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("create_pr", [False, True])
def test_the_tokenizer_pushed_last_is_loaded(hub, tmp_path, legacy, create_pr):
    model_of(1).save_pretrained(tmp_path / "first")
    model_of(1).save_pretrained(tmp_path / "second")
    old = tokenizer_of("今天气好", chat_template={"default": "1", "other": "2"}, do_lower_case=False)
    old.save_pretrained(tmp_path / "first")
    for name in ("special_tokens_map.json", "added_tokens.json"):  # of transformers 4
        (tmp_path / "first" / name).write_text(json.dumps({"mask_token": "好"} if "map" in name else {"旧": 9}))
    push(tmp_path / "first", REPO)
    new, told = tokenizer_of("好天今气"), []
    new.save_pretrained(tmp_path / "second", legacy_format=legacy)
    push(tmp_path / "second", REPO, create_pr=create_pr, tell=told.append)
    revision = "refs/pr/1" if create_pr else "main"
    for load in (RoFormerTokenizer, AutoTokenizer):
        loaded = load.from_pretrained(REPO, revision=revision)
        assert loaded.get_vocab() == new.get_vocab() and loaded.chat_template is None
        assert loaded.special_tokens_map == new.special_tokens_map
        assert loaded("今天Hello").input_ids == new("今天Hello").input_ids
    outdated = ["special_tokens_map.json", "added_tokens.json", "additional_chat_templates/other.jinja"]
    assert_states(told[0], *outdated, *(["tokenizer.json"] if legacy else []))


def test_a_folder_without_a_tokenizer_leaves_the_one_there(hub, tmp_path):
    model_of(1).save_pretrained(tmp_path / "model")
    tokenizer = tokenizer_of("今天气好")
    tokenizer.save_pretrained(tmp_path / "model")
    push(tmp_path / "model", REPO)
    model_of(2).save_pretrained(tmp_path / "weights")
    push(tmp_path / "weights", REPO)
    assert AutoTokenizer.from_pretrained(REPO).get_vocab() == tokenizer.get_vocab()


def test_two_vocabularies_in_one_folder_are_not_sent(hub, tmp_path):
    model_of(1).save_pretrained(tmp_path)
    tokenizer_of("今天气好").save_pretrained(tmp_path)
    tokenizer_of("好天今气").save_vocabulary(str(tmp_path))
    with refused(VocabularyError, tmp_path / "vocab.txt", tmp_path / "tokenizer.json", "'今'", 5, 7):
        push(tmp_path, REPO)
    assert not hub.requests


def test_weights_are_not_sent_beside_the_adapter_of_others(hub, tmp_path):
    """transformers would load the base model that the adapter names, with the adapter."""
    saved(tmp_path, 1, "50GB")
    push(tmp_path, REPO)
    add(hub, ["adapter_config.json"])
    before = hub.repos[REPO].files()
    with refused(HubError, "adapter_config.json", tmp_path):
        push(tmp_path, REPO)
    assert hub.repos[REPO].files() == before
