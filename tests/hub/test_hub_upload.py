"""`push`: complete folders arrive in one commit, incomplete ones cause no traffic, and every failure is one
sentence."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from helpers import command_line, fake_time, hub_server
from helpers.hub_server import PART_SIZE, Fault
from helpers.messages import assert_states, refused
from helpers.properties import max_examples
from huggingface_hub import HfApi, ModelCard, snapshot_download
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, cli
from modeling_roformer.hub import HubError, push

fake_time, hub = fake_time.fake_time, hub_server.hub  # the fixtures
REPO = "somebody/model"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "今天", "天气", "很", "好", "。"]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "my-model"
    torch.manual_seed(0)
    config = RoFormerConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    RoFormerForMaskedLM(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "RoFormerTokenizer"}')
    return folder


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def published(hub):
    """The files of a repository without the one that the Hub makes itself."""
    repo = hub.repos.get(REPO)
    return {} if repo is None else {name: d for name, d in repo.files().items() if name != ".gitattributes"}


def test_a_folder_arrives_whole_in_one_commit(hub, folder):
    before = content(folder)
    url = push(folder, REPO, commit_message="first")
    assert url == f"{hub.url}/{REPO}"
    assert content(folder) == before, "push wrote into the folder"
    arrived = published(hub)
    assert {name: data for name, data in arrived.items() if name != "README.md"} == before
    assert list(hub.repos[REPO].messages.values()) == ["initial commit", "first"]
    assert not hub.repos[REPO].private
    loaded, info = RoFormerForMaskedLM.from_pretrained(REPO, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    for name, tensor in load_file(folder / "model.safetensors").items():
        assert np.array_equal(loaded.state_dict()[name].numpy(), tensor)


def graph(folder):
    """Instead of the weights, a graph for ONNX Runtime that has them; its size is returned."""
    rows = torch.randn(len(VOCABULARY), 16).numpy()
    values = onnx.helper.make_node("Gather", ["rows", "input_ids"], ["last_hidden_state"])
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["batch", "length"])
    answer = onnx.helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["batch", "length", 16])
    whole = onnx.helper.make_graph([values], "model", [ids], [answer], [onnx.numpy_helper.from_array(rows, "rows")])
    (folder / "onnx").mkdir()
    onnx.save(onnx.helper.make_model(whole), folder / "onnx" / "model.onnx")
    (folder / "model.safetensors").unlink()
    return (folder / "onnx" / "model.onnx").stat().st_size


def test_a_folder_for_onnx_runtime_arrives_whole(hub, folder):
    graph(folder)
    (folder / "README.md").write_text("# A graph, with `import modeling_roformer`\n", encoding="utf-8")
    push(folder, REPO)
    assert published(hub) == content(folder)


def test_a_graph_that_was_cut_off_is_not_sent(hub, folder):
    size = graph(folder)
    whole = (folder / "onnx" / "model.onnx").read_bytes()
    for length in range(size):
        (folder / "onnx" / "model.onnx").write_bytes(whole[:length])
        with refused(ValueError, "model.onnx", "ONNX"):
            push(folder, REPO)
    (folder / "onnx" / "model.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with refused(ValueError, "model.onnx", "ONNX"):
        push(folder, REPO)
    assert not hub.repos


PATH = "/home/me/secret-customer/model-3"
SETTINGS = {
    "config.json": {"_name_or_path": PATH, "encoder": {"_name_or_path": PATH + "/"}, "label2id": {"/a/b": 0}},
    "tokenizer_config.json": {
        "name_or_path": "C:\\secret-customer\\model-3",
        "tokenizer_file": PATH,
        "mask_token": "/a/b",
        "vocab_file": None,
    },
    "generation_config.json": {"_name_or_path": "../secret-customer/model-3"},
    "adapter_config.json": {"base_model_name_or_path": "secret-customer/of/mine/model-3", "revision": "a/b"},
}


@pytest.mark.parametrize("with_code", [False, True])
def test_paths_of_this_machine_stay_here(hub, folder, with_code):
    """Only the last part of a path in the settings is published; names on the Hub, and all other fields, are sent as
    they are."""
    for name, fields in SETTINGS.items():
        path = folder / name
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | fields))
    before = content(folder)
    push(folder, REPO, with_code=with_code)
    assert content(folder) == before, "push wrote into the folder"
    arrived = published(hub)
    assert not [name for name, data in arrived.items() if b"secret-customer" in data]
    sent = {name: json.loads(arrived[name]) for name in SETTINGS}
    assert sent["config.json"]["_name_or_path"] == sent["config.json"]["encoder"]["_name_or_path"] == "model-3"
    assert sent["config.json"]["label2id"] == {"/a/b": 0} and sent["config.json"]["hidden_size"] == 16
    assert sent["tokenizer_config.json"]["name_or_path"] == sent["tokenizer_config.json"]["tokenizer_file"] == "model-3"
    assert sent["tokenizer_config.json"]["mask_token"] == "/a/b" and sent["tokenizer_config.json"]["vocab_file"] is None
    assert sent["generation_config.json"] == {"_name_or_path": "model-3"}
    assert sent["adapter_config.json"] == {"base_model_name_or_path": "model-3", "revision": "a/b"}


def test_names_on_the_hub_are_sent_unless_they_are_folders_here(hub, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for name, sent in {"somebody/a-model": "somebody/a-model", "a-model": "a-model", "my-model/onnx": "onnx"}.items():
        (folder / "onnx").mkdir(exist_ok=True)
        (folder / "generation_config.json").write_text(json.dumps({"_name_or_path": name}))
        push(folder, REPO)
        assert json.loads(published(hub)["generation_config.json"]) == {"_name_or_path": sent}


def test_a_missing_card_is_written_from_the_folder(hub, folder):
    push(folder, REPO)
    card = ModelCard(published(hub)["README.md"].decode())
    parameters = sum(tensor.size for tensor in load_file(folder / "model.safetensors").values())
    assert card.data.pipeline_tag == "fill-mask" and card.data.language == "zh"
    assert f"| parameters | {parameters:,} |" in card.text and "| dtype | float32 |" in card.text
    assert "my-model" in card.text


def test_the_card_knows_a_vocabulary_of_characters(hub, folder):
    entries = VOCABULARY[:5] + list("今天气很好")
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    push(folder, REPO)
    card = ModelCard(published(hub)["README.md"].decode())
    assert card.data.language == "zh" and "character-level" in card.data.tags


def test_a_card_that_was_edited_on_the_hub_is_kept(hub, folder):
    push(folder, REPO)
    card = b"---\nlicense: mit\n---\n\n# Edited there\n"
    HfApi().upload_file(path_or_fileobj=card, path_in_repo="README.md", repo_id=REPO)
    edited = published(hub)["README.md"]
    push(folder, REPO)
    assert published(hub)["README.md"] == edited


def test_the_folders_own_card_is_kept(hub, folder):
    card = "---\nlicense: mit\n---\n\n# Mine\n"
    (folder / "README.md").write_text(card)
    push(folder, REPO)
    assert published(hub)["README.md"].decode() == card


def add(folder, *names, text="x"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


HIDDEN = [".git/config", ".cache/huggingface/token", "__pycache__/a.pyc", "sub/.DS_Store"]
OF_TRAINING = [
    *["checkpoint-10/model.safetensors", "checkpoint-10/vocab.txt", "runs/Nov21/events.out.tfevents.1.host.2.0"],
    *["optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "rng_state_0.pth", "training_args.bin"],
    *[
        "whole.json",
        "run.json",
        "trainer_state.json",
        "wandb/run-1/config.yaml",
        "mlruns/0/meta.yaml",
        "lightning_logs/version_0/hparams.yaml",
    ],
    *["optimizer.bin", "optimizer_1.bin", "scheduler.bin", "sampler.bin", "dl_state_dict.bin", "random_states_0.pkl"],
    *["custom_checkpoint_0.pkl", "pytorch_model_fsdp.bin", "pytorch_model_fsdp_0/x.distcp", "optimizer_0/x.distcp"],
    *["latest", "zero_to_fp32.py", "global_step5/mp_rank_00_model_states.pt", "logs/events.out.tfevents.1.host"],
]
CREDENTIALS = [
    *[
        "id_rsa",
        "id_ed25519.pub",
        "server.pem",
        "sub/deploy.key",
        "keys.p12",
        ".env",
        ".env.local",
        "prod.env",
        ".netrc",
    ],
    *["credentials.json", "aws_credentials", "Credentials", "secrets/a.txt", "secrets.yaml", "client_secret_1.json"],
    *["my-service-account.json", "x-firebase-adminsdk-a.json", "api_key.txt", "password.txt", "kubeconfig"],
    *["token", "token.txt", "hf_token", "HF_TOKEN.txt", "my-token", "access_token.json", "sub/github-token.yml"],
]
# Names that are near to those.
OF_THE_MODEL = [
    *["special_tokens_map.json", "added_tokens.json", "tokens.txt", "token_counts.json", "tokenization.py", "keys.txt"],
    *[
        "secretary.txt",
        "environment.yml",
        "latest.md",
        "runs.md",
        "optimizer.md",
        "pytorch_model.bin",
        "all_results.json",
    ],
    *[
        "tf_model.h5",
        "openvino/openvino_model.bin",
        "loss.png",
        "eval_results.json",
        "rng.txt",
        "monkey.txt",
        "sampler.py",
    ],
]


def test_what_training_and_tools_leave_behind_stays_here(hub, folder):
    told = []
    add(folder, *HIDDEN, *OF_TRAINING, *CREDENTIALS, "_draft.txt", text="{}")
    add(folder, *OF_THE_MODEL, text="{}")
    push(folder, REPO, tell=told.append)
    before = {"config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json", "generation_config.json"}
    arrived = set(published(hub)) - before - {"README.md"}
    assert arrived == set(OF_THE_MODEL)
    (sentence,) = told
    assert_states(sentence, "optimizer.pt, ", "runs/, ", "7 more", "training")
    assert_states(sentence, "credentials.json, ", "credential", "_draft.txt", '"_"')
    assert "DS_Store" not in sentence and ".git" not in sentence and "\n" not in sentence


def test_each_that_is_left_out_is_told(hub, folder):
    names = OF_TRAINING + CREDENTIALS
    for start in range(0, len(names), 15):
        told, some = [], names[start : start + 15]
        add(folder, *some)
        push(folder, REPO, tell=told.append)
        (sentence,) = told
        for name in some:
            outermost = folder / name.split("/")[0]
            assert name not in published(hub) and (name in sentence or f"{outermost.name}/" in sentence)
            shutil.rmtree(outermost) if outermost.is_dir() else outermost.unlink(missing_ok=True)


def test_a_whole_model_leaves_nothing_to_tell(hub, folder, caplog):
    add(folder, *HIDDEN)
    push(folder, REPO)
    assert not caplog.records
    add(folder, "optimizer.pt")
    push(folder, REPO)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "optimizer.pt" in record.getMessage()


KEYS = {
    "backup": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----\n",
    "notes.txt": "\n-----BEGIN PRIVATE KEY-----\nMIIE\n",
    "later.txt": "The key of the server:\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n",
    "marked.txt": "\ufeff-----BEGIN PRIVATE KEY-----\nMIIE\n",
    "mail.asc": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOY\n",
    "putty.txt": "PuTTY-User-Key-File-3: ssh-ed25519\n",
    "login.txt": f"hf_{'aB3' * 12}\n",
    "project-1a2b.json": json.dumps({"type": "x", "private_key": "-----BEGIN PRIVATE KEY-----\nMIIE\n"}, indent=2),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_known_by_its_content(hub, folder, name, encoding):
    told = []
    (folder / name).write_text(KEYS[name], encoding=encoding)
    (folder / "how-to.md").write_text("A key begins with -----BEGIN PRIVATE KEY-----\n")
    push(folder, REPO, tell=told.append)
    assert name not in published(hub) and "how-to.md" in published(hub)
    (sentence,) = told
    assert_states(sentence, name, "credential")
    assert "how-to.md" not in sentence


def test_what_training_leaves_is_known_in_any_case_of_letters(hub, folder):
    add(
        folder,
        "OPTIMIZER.PT",
        "Training_Args.bin",
        "Checkpoint-5/model.safetensors",
        "WANDB/x",
        "Secret/x",
        "stored_tokens",
    )
    push(folder, REPO)
    assert not [name for name in published(hub) if name.lower() != name and name != "README.md"]
    assert "stored_tokens" not in published(hub)


@pytest.mark.parametrize("what", ["link", "content", "gone"])
@pytest.mark.parametrize("create_pr", [False, True])
def test_what_changes_while_it_is_sent_is_not_published(hub, folder, tmp_path, what, create_pr):
    """A file that was checked, and then is a link to one outside, for example."""
    push(folder, REPO)
    notes, other = folder / "notes.txt", tmp_path / "other.txt"
    notes.write_text("mine"), other.write_text("hers")
    before = published(hub)

    def change(request):
        if "/preupload/" in request and not notes.is_symlink():
            notes.unlink(missing_ok=True)
            if what == "link":
                notes.symlink_to(other)
            elif what == "content":
                notes.write_text("another")

    hub.before = change
    with refused(HubError, "nothing", folder / "notes.txt"):
        push(folder, REPO, create_pr=create_pr)
    assert published(hub) == before and not hub.repos[REPO].pull_requests


def test_a_folder_that_breaks_while_it_is_sent_is_not_the_hubs_fault(hub, folder):
    """The card is written from the weights, after the Hub has said that it has none."""

    def cut(request):
        if "/repos/create" in request:
            (folder / "model.safetensors").write_bytes(b"cut")

    hub.before = cut
    with refused(HubError, "nothing") as caught:
        push(folder, REPO)
    assert "404" not in str(caught.value)


@pytest.mark.parametrize(
    "link",
    [
        "![loss](runs/loss.png)",
        '![loss](./runs/loss.png "The loss")',
        "[![loss](<runs/loss.png>)](https://example.org)",
        "[The loss](runs/loss.png?raw=true#a)",
        "See [loss].\n\n[loss]: runs/loss.png",
        '<p><img width="50%" src="runs/loss.png"></p>',
        f"![loss](https://huggingface.co/{REPO}/resolve/main/runs/loss.png)",
    ],
)
def test_what_the_card_shows_belongs_to_the_model(hub, folder, link):
    told = []
    (folder / "README.md").write_text(f"---\nlicense: mit\n---\n# Mine\n\n{link}\n")
    add(folder, "runs/loss.png", "runs/events.out.tfevents.1.host", "runs/loss.png.txt")
    push(folder, REPO, tell=told.append)
    assert {name for name in published(hub) if name.startswith("runs")} == {"runs/loss.png"}
    (sentence,) = told
    assert_states(sentence, "runs/events.out.tfevents.1.host", "runs/loss.png.txt", "training")
    assert not re.search(r"runs/loss\.png\b(?!\.txt)", sentence)


def test_the_card_publishes_no_folder_and_no_credential(hub, folder):
    (folder / "README.md").write_text(
        "[logs](runs) [logs](runs/) [key](id_rsa) [a](.git/config) [plot](_static/a%20b.png)"
    )
    add(folder, "runs/a.txt", "id_rsa", ".git/config", "_static/a b.png", "_static/c.png")
    push(folder, REPO, tell=lambda sentence: None)
    arrived = published(hub)
    assert "_static/a b.png" in arrived
    assert not arrived.keys() & {"runs/a.txt", "id_rsa", ".git/config", "_static/c.png"}


def test_links_in_the_folder_are_followed(hub, folder, tmp_path):
    add(folder, "checkpoint-3/notes.md", "docs/a.md", "_here.txt")
    (folder / "checkpoint-3" / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("checkpoint-3/model.safetensors")
    (folder / "documents").symlink_to(folder / "docs")
    (folder / "last").symlink_to("checkpoint-3")
    (tmp_path / "link").symlink_to(folder)
    push(tmp_path / "link", REPO, tell=lambda sentence: None)
    arrived = published(hub)
    assert arrived["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    assert arrived["documents/a.md"] == arrived["docs/a.md"] == b"x"
    assert not [name for name in arrived if name.startswith(("last", "checkpoint"))]


def link_to(target, name="notes.txt"):
    return lambda folder: (folder / name).symlink_to(target)


BAD_LINKS = {
    "a file elsewhere": (link_to("../outside/secret.txt"), ["notes.txt", "secret.txt", "outside"]),
    "by its whole path": (
        lambda f: link_to(f.parent / "outside" / "secret.txt")(f),
        ["notes.txt", "secret.txt", "outside"],
    ),
    "over another link": (
        lambda f: (link_to("second.txt")(f), link_to("../outside/secret.txt", "second.txt")(f)),
        ["notes.txt", "secret.txt", "outside"],
    ),
    "a folder elsewhere": (link_to("../outside", "docs"), ["docs", "outside"]),
    "the config": (
        lambda f: ((f / "config.json").rename(f.parent / "c.json"), link_to("../c.json", "config.json")(f)),
        ["config.json", "c.json", "outside"],
    ),
    "in a folder": (lambda f: ((f / "sub").mkdir(), link_to("../../outside", "sub/docs")(f)), ["sub/docs", "outside"]),
    "the folder itself": (link_to(".", "docs"), ["docs", "contains"]),
    "nowhere": (link_to("nothing.txt"), ["notes.txt", "nothing.txt", "exist"]),
    "itself": (link_to("notes.txt"), ["notes.txt", "exist"]),
    "a credential": (lambda f: (add(f, ".env"), link_to(".env")(f)), ["notes.txt", "/.env", "credential"]),
    "one in a folder": (
        lambda f: (add(f, "secrets/a"), link_to("secrets/a")(f)),
        ["notes.txt", "secrets/a", "credential"],
    ),
    "another cache's blob": (
        lambda f: (
            (f.parent / "blobs").mkdir(),
            (f.parent / "blobs" / ("a" * 40)).write_text("x"),
            link_to(f"../blobs/{'a' * 40}")(f),
        ),
        ["notes.txt", "a" * 40, "outside"],
    ),
}


@pytest.mark.parametrize("case", BAD_LINKS)
def test_links_out_of_the_folder_are_refused(hub, folder, case):
    make, facts = BAD_LINKS[case]
    add(folder.parent, "outside/secret.txt")
    make(folder)
    with refused(ValueError, *facts):
        push(folder, REPO)
    assert not hub.requests


def test_links_that_are_left_out_lead_anywhere(hub, folder):
    add(folder.parent, "outside/secret.txt")
    for name in ("runs", "wandb", ".cache", "checkpoint-1"):
        (folder / name).symlink_to("../outside")
    (folder / "id_rsa").symlink_to("../outside/secret.txt")
    push(folder, REPO, tell=lambda sentence: None)
    assert not [name for name, data in published(hub).items() if data == b"x"]


@pytest.mark.parametrize("below", ["", "sub"])
def test_a_snapshot_of_the_cache_is_pushed(hub, folder, tmp_path, below):
    """A repository as huggingface_hub keeps it: the files of a snapshot are links to blobs beside it."""
    repository = tmp_path / "models--somebody--other"
    snapshot = repository / "snapshots" / ("c" * 40) / below
    snapshot.mkdir(parents=True), (repository / "blobs").mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        blob = repository / "blobs" / f"{number:0{64 if path.suffix == '.safetensors' else 40}x}"
        path.rename(blob)
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    push(snapshot, REPO)
    assert content(snapshot).items() <= published(hub).items()
    hub.requests.clear()
    (tmp_path / "secret").write_text("x"), (repository / "blobs" / ("d" * 40)).symlink_to(tmp_path / "secret")
    for target in (repository / "blobs" / ("d" * 40), tmp_path / "models--a--b" / "blobs" / ("0" * 40), repository):
        (snapshot / "notes.txt").unlink(missing_ok=True)
        (snapshot / "notes.txt").symlink_to(target)
        with refused(ValueError, snapshot / "notes.txt", os.path.realpath(target)):
            push(snapshot, REPO)
    assert not hub.requests


def test_a_folder_from_the_real_cache_is_pushed(hub, folder):
    push(folder, REPO)
    snapshot = snapshot_download(REPO)
    assert any(path.is_symlink() for path in Path(snapshot).iterdir())
    push(snapshot, "somebody/copy")
    assert hub.repos["somebody/copy"].files() == hub.repos[REPO].files()


def test_shards_arrive(hub, folder, tmp_path):
    model = RoFormerForMaskedLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="4KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    push(folder, REPO)
    assert set(content(folder)) <= set(published(hub))
    loaded = RoFormerForMaskedLM.from_pretrained(REPO).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in model.state_dict().items())


def test_a_branch_and_a_private_repository(hub, folder):
    assert push(folder, REPO, private=True, revision="trial").endswith(f"/{REPO}/tree/trial")
    assert hub.repos[REPO].private
    assert "model.safetensors" in hub.repos[REPO].files("trial") and not published(hub)
    push(folder, REPO, private=True)
    assert published(hub)


def test_private_is_not_promised_of_a_public_repository(hub, folder):
    push(folder, REPO)
    (folder / "unpublished.txt").write_text("x")
    with refused(HubError, REPO, "public", "private"):
        push(folder, REPO, private=True)
    assert "unpublished.txt" not in published(hub)


def test_an_old_revision_still_loads(hub, folder):
    push(folder, REPO)
    first = hub.repos[REPO].branches["main"]
    old = load_file(folder / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in old.items()}, folder / "model.safetensors", {"format": "pt"})
    push(folder, REPO)
    name = "roformer.embeddings.word_embeddings.weight"
    for revision, shift in ((first, 0), ("main", 1)):
        state = RoFormerForMaskedLM.from_pretrained(REPO, revision=revision).state_dict()
        assert np.array_equal(state[name].numpy(), old[name] + shift)


def drop(name):
    return lambda folder: (folder / name).unlink()


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def cut(name, size):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def index(weight_map):
    def change(folder):
        (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return change


def shard(name):
    """The weights in another place, which the index names."""

    def change(folder):
        index(dict.fromkeys(load_file(folder / "model.safetensors"), name))(folder)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / "model-00001-of-00002.safetensors").rename(folder / name)

    return change


BROKEN = {
    "no config": (drop("config.json"), ["no config.json"]),
    "config that is no JSON": (write("config.json", "{"), ["config.json", "JSON"]),
    "config that is no object": (write("config.json", "[]"), ["config.json", "JSON object"]),
    "config with a field twice": (write("config.json", '{"a": {"b": 1, "b": 2}}'), ["config.json", "'b'"]),
    "config of no model": (write("config.json", "{}"), ["config.json", "no model_type"]),
    "config in Latin-1": (lambda f: (f / "config.json").write_bytes(b'{"a": "\xe9"}'), ["config.json", "utf-8"]),
    "no weights": (drop("model.safetensors"), ["no weights", "model.safetensors", "model.safetensors.index.json"]),
    "weights cut off": (cut("model.safetensors", 3000), ["model.safetensors", "header"]),
    "empty weights": (cut("model.safetensors", 0), ["model.safetensors", "safetensors file"]),
    "missing shard": (
        index({"a": "model-00002-of-00002.safetensors"}),
        ["model-00002-of-00002.safetensors", "model.safetensors.index.json"],
    ),
    "shard without its tensor": (
        index({"a.b": "model-00001-of-00002.safetensors"}),
        ["model-00001-of-00002.safetensors", "a.b", "model.safetensors.index.json"],
    ),
    "broken weights beside whole shards": (
        lambda f: (index({"a": "x"})(f), write("model.safetensors", "rest")(f)),
        ["model.safetensors", "safetensors file"],
    ),
    "empty index": (index({}), ["model.safetensors.index.json", "weight_map"]),
    "shard that is left out": (shard("_shard.safetensors"), ["_shard.safetensors", "published"]),
    "shard elsewhere": (shard("../out.safetensors"), ["../out.safetensors", "published"]),
    "shard of a checkpoint": (shard("checkpoint-1/x.safetensors"), ["checkpoint-1/x.safetensors", "published"]),
    "hidden shard": (shard(".cache/x.safetensors"), [".cache/x.safetensors", "published"]),
    "shard under another name": (shard("./x.safetensors"), ["./x.safetensors", "published"]),
    "vocabulary too long": (
        write("vocab.txt", "\n".join([*VOCABULARY, "多"])),
        ["vocab.txt", "'多'", "id 10", "10 rows", "resize_token_embeddings"],
    ),
    "tokenizer.json too long": (
        write("tokenizer.json", json.dumps({"model": {"type": "WordPiece", "vocab": {"a": 0, "多": 10}}})),
        ["tokenizer.json", "'多'", "id 10", "10 rows"],
    ),
    "added token": (
        write("tokenizer.json", json.dumps({"model": {}, "added_tokens": [{"id": 11, "content": "[NEW]"}]})),
        ["tokenizer.json", "'[NEW]'", "id 11", "10 rows"],
    ),
    "added token, in its old place": (
        write("added_tokens.json", '{"[NEW]": 10}'),
        ["added_tokens.json", "'[NEW]'", "id 10", "10 rows"],
    ),
    "config of blanks": (write("config.json", " " * (17 << 20)), ["config.json", "16,777,216 bytes"]),
    "card of blanks": (write("README.md", " " * (17 << 20)), ["README.md", "16,777,216 bytes"]),
    "index of blanks": (
        lambda f: (index({})(f), os.truncate(f / "model.safetensors.index.json", 65 << 20)),
        ["model.safetensors.index.json", "67,108,864 bytes"],
    ),
    "tokenizer of blanks": (
        lambda f: ((f / "tokenizer.json").touch(), os.truncate(f / "tokenizer.json", 65 << 20)),
        ["tokenizer.json", "67,108,864 bytes"],
    ),
    "vocabulary of lines": (write("vocab.txt", "\n" * 2_200_000), ["vocab.txt", "2,097,152 entries"]),
    "entry twice": (write("vocab.txt", "\n".join([*VOCABULARY, "好"])), ["vocab.txt", "'好'"]),
    "no vocabulary": (drop("vocab.txt"), ["tokenizer", "vocab.txt", "tokenizer.json"]),
    "broken tokenizer_config": (write("tokenizer_config.json", "nothing"), ["tokenizer_config.json", "JSON"]),
    "broken card": (write("README.md", "---\na: [\n---\n"), ["README.md", "YAML"]),
    "card with an unknown license": (
        write("README.md", "---\nlicense: qwertz\n---\n"),
        ["README.md", "license", "'qwertz'"],
    ),
    "code of a pipeline that is not there": (
        write("config.json", '{"model_type": "roformer", "custom_pipelines": {"x": {"impl": "model.X"}}}'),
        ["custom_pipelines", "model.py", "--with-code"],
    ),
    "code that is left out": (
        lambda f: (
            add(f, "_model.py"),
            write("config.json", '{"model_type": "x", "auto_map": {"AutoModel": "_model.A"}}')(f),
        ),
        ["auto_map", "_model.py", "--with-code"],
    ),
    "code that is not there": (
        write("config.json", '{"model_type": "roformer", "auto_map": {"AutoModel": "model.RoFormerModel"}}'),
        ["auto_map", "model.py", "--with-code"],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_incomplete_folder_causes_no_traffic(hub, folder, case):
    break_it, facts = BROKEN[case]
    break_it(folder)
    with pytest.raises(ValueError) as caught:
        push(folder, REPO)
    assert_states(caught.value, *facts)
    assert "\n" not in str(caught.value) and not hub.requests


def test_shards_of_a_vocabulary_that_is_too_long(hub, folder):
    model = RoFormerForMaskedLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="2KB")
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, "多"]))
    with refused(ValueError, "vocab.txt", "'多'", "id 10", "10 rows"):
        push(folder, REPO)
    assert not hub.requests


def test_embeddings_may_have_more_rows_than_the_vocabulary(hub, folder):
    model = RoFormerForMaskedLM.from_pretrained(folder)
    model.resize_token_embeddings(16)
    model.save_pretrained(folder)
    push(folder, REPO)
    assert RoFormerForMaskedLM.from_pretrained(REPO).config.vocab_size == 16


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = {
    "config.json": ["model_type", "auto_map", "custom_pipelines", "architectures", "vocab_size"],
    "tokenizer_config.json": ["auto_map", "tokenizer_class"],
    "tokenizer.json": ["model", "added_tokens"],
    "model.safetensors.index.json": ["weight_map", "metadata"],
}


@max_examples(50)
@given(data=st.data(), name=st.sampled_from(sorted(FIELDS)))
def test_any_json_is_published_or_refused_in_a_sentence(hub, folder, data, name):
    before = content(folder)
    whole = json.loads(before.get(name, b"{}"))
    changes = st.dictionaries(st.sampled_from(FIELDS[name]), JSON, max_size=3).map(lambda fields: whole | fields)
    (folder / name).write_text(json.dumps(data.draw(changes | JSON)))
    try:
        push(folder, REPO)
    except ValueError as error:
        assert "\n" not in str(error) and str(error)
    finally:
        for path in folder.iterdir():
            path.unlink()
        for path, its_content in before.items():
            (folder / path).write_bytes(its_content)


@pytest.mark.parametrize(
    ("name", "fields"),
    [("model.safetensors.index.json", {"weight_map": {"": "\n"}}), ("config.json", {"auto_map": "\n"})],
)
def test_a_name_with_a_line_break_is_shown_escaped(hub, folder, name, fields):
    path = folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | fields))
    with refused(ValueError, r"'\n"):
        push(folder, REPO)


def test_other_bad_arguments_cause_no_traffic(hub, folder, monkeypatch):
    with refused(ValueError, folder / "nothing"):
        push(folder / "nothing", REPO)
    with pytest.raises(ValueError, match="Repo id"):
        push(folder, "a/b/c")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with refused(ValueError, folder / "config.json", "model_type", "'bert'", "--with-code"):
        push(folder, REPO, with_code=True)
    monkeypatch.delenv("HF_TOKEN")
    with refused(ValueError, "token", "HF_TOKEN", "hf auth login"):
        push(folder, REPO)
    assert not hub.requests


@pytest.mark.parametrize(
    ("fault", "facts"),
    [
        (Fault("POST .*/repos/create", status=401), ["token", "hf auth login", 401]),
        (Fault("POST .*/preupload", status=403), ["token", f"write to {REPO}", 403]),
        (Fault("POST .*/preupload", status=404), [REPO, 404]),
        (Fault("POST .*/objects/batch", status=409), [REPO, "push again"]),
        (Fault("POST .*/objects/batch", status=413), ["too large", 413]),
        (Fault("POST .*/commit/", status=400), ["injected 400"]),
        (Fault("POST .*/commit/", status=401), ["token", "hf auth login", 401]),
        (Fault("POST .*/commit/", status=403), ["token", f"write to {REPO}", 403]),
        (Fault("POST .*/commit/", status=404), [REPO, 404]),
        (Fault("POST .*/commit/", status=409), [REPO, "push again"]),
        (Fault("POST .*/commit/", status=412), [REPO, "push again"]),
        (Fault("POST .*/commit/", status=413), ["too large", 413]),
        (Fault("PUT /lfs/", status=400), ["files", 400]),
        (Fault("PUT /lfs/", status=403), ["token", f"write to {REPO}", 403]),
    ],
    ids=lambda value: f"{value.route} {value.status or 'cut'}" if isinstance(value, Fault) else "",
)
def test_what_the_hub_refuses_is_told_in_one_sentence_at_once(hub, folder, fake_time, fault, facts):
    hub.faults.append(replace(fault))
    with refused(HubError, "nothing", *facts) as caught:
        push(folder, REPO)
    assert hub.token not in str(caught.value) and not published(hub)
    assert not fake_time.slept and hub.faults[0].times == 0


REFUSED = {"errors": [{"message": '"pipeline_tag" must be str'}], "warnings": []}


def test_what_the_hub_finds_in_a_card_is_told(hub, folder, monkeypatch):
    """The check before a push passes, but the Hub's own check does not."""
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    monkeypatch.setattr(hub_server.Handler, "validate_yaml", lambda _: hub_server.Answer(400, REFUSED))
    with refused(HubError, "nothing", '"pipeline_tag" must be str'):
        push(folder, REPO)
    assert not published(hub)


def test_tokens_that_may_not_write(hub, folder):
    hub.tokens["hf_reader"] = "somebody"
    hub.read_only.add("hf_reader")
    cases = {"hf_reader": [f"write to {REPO}", "HF_TOKEN"], "hf_unknown": ["token", "Authorization"]}
    for token, facts in cases.items():
        with refused(HubError, *facts) as caught:
            push(folder, REPO, token=token)
        assert token not in str(caught.value)
    assert not published(hub)


def test_no_error_holds_the_token(hub, folder, fake_time):
    told = {"X-Error-Message": f"{hub.token} may not do this"}
    for fault in (Fault("POST .*/commit/", status=403, headers=told), Fault("POST .*/commit/", status=503, times=9)):
        hub.faults[:] = [fault]
        with pytest.raises(HubError) as caught:
            push(folder, REPO)
        assert hub.token not in "".join(traceback.format_exception(caught.value))
    # httpx shows such a header in its error; an umlaut is what is left of a token copied from a formatted text.
    for token in (f"{hub.token}\nX-Other: 1", f"{hub.token}ü", f"{hub.token} x"):
        with refused(ValueError, "token", "character") as caught:
            push(folder, REPO, token=token)
        assert hub.token not in "".join(traceback.format_exception(caught.value))


def test_a_token_comes_from_the_login_file_too(hub, folder, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    path = Path(hub.environment["HF_TOKEN_PATH"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{hub.token}\n")
    push(folder, REPO)
    assert published(hub)


def test_a_pull_request_changes_no_branch(hub, folder):
    hub.tokens["hf_guest"] = "guest"
    push(folder, REPO)
    before = published(hub)
    (folder / "notes.txt").write_text("new")
    url = push(folder, REPO, create_pr=True, commit_message="Add notes", token="hf_guest")
    assert url == f"{hub.url}/{REPO}/discussions/1"
    assert published(hub) == before
    assert hub.repos[REPO].files("refs/pr/1")["notes.txt"] == b"new"
    assert hub.repos[REPO].pull_requests[0]["title"] == "Add notes"
    (folder / "notes.txt").unlink()
    with refused(HubError, REPO, "no pull request"):
        push(folder, REPO, create_pr=True)
    with refused(HubError, f"{REPO}-missing", 404):
        push(folder, f"{REPO}-missing", create_pr=True)


NEEDS = {"roformer_v2": {"norm_type": "rms_norm", "use_bias": False}, "roformer_x": {"prefix_lm": True}}


@pytest.mark.parametrize("own_card", [None, "---\nlicense: mit\n---\n\n# Mine\n"])
@pytest.mark.parametrize("model_type", [*NEEDS, "roformer"])
def test_the_card_says_what_the_model_needs(hub, folder, model_type, own_card):
    config = RoFormerConfig.from_pretrained(folder, **NEEDS.get(model_type, {}))
    assert config.to_dict()["model_type"] == model_type
    RoFormerForMaskedLM(config).save_pretrained(folder)
    if own_card:
        (folder / "README.md").write_text(own_card)
    before = content(folder)
    push(folder, REPO)
    card = published(hub)["README.md"].decode()
    assert card.startswith((own_card or "---\n").rstrip()) and content(folder) == before
    assert ("import modeling_roformer" in card) == (model_type in NEEDS or own_card is None)
    push(folder, REPO, with_code=True)
    with_code = published(hub)["README.md"].decode()
    assert "trust_remote_code=True" in with_code and with_code.startswith((own_card or card).rstrip())
    assert content(folder) == before
    hub.requests.clear()
    push(folder, REPO, with_code=True)
    assert published(hub)["README.md"].decode() == with_code


def test_a_card_on_the_hub_gets_what_it_lacks(hub, folder):
    RoFormerForMaskedLM(RoFormerConfig.from_pretrained(folder, **NEEDS["roformer_v2"])).save_pretrained(folder)
    push(folder, REPO)
    card = b"---\nlicense: mit\n---\n\n# Edited there\n"
    HfApi().upload_file(path_or_fileobj=card, path_in_repo="README.md", repo_id=REPO)
    push(folder, REPO)
    card = published(hub)["README.md"].decode()
    assert "# Edited there" in card and "import modeling_roformer" in card


def test_code_that_a_pipeline_names_must_be_there(hub, folder):
    config = json.loads((folder / "config.json").read_text())
    config["custom_pipelines"] = {"task": {"impl": "my_pipeline.MyPipeline", "pt": ["AutoModel"]}, "other": 3}
    (folder / "config.json").write_text(json.dumps(config))
    with refused(ValueError, "custom_pipelines", "my_pipeline.py"):
        push(folder, REPO)
    assert not hub.requests
    (folder / "my_pipeline.py").write_text("class MyPipeline: ...\n")
    push(folder, REPO)
    assert "my_pipeline.py" in published(hub)


@pytest.mark.parametrize("with_code", [False, True])
def test_the_folder_is_only_read(hub, folder, with_code):
    def state():
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}

    before, folder_before = state(), folder.stat().st_mtime_ns
    folder.chmod(0o555)
    try:
        push(folder, REPO, with_code=with_code)
    finally:
        folder.chmod(0o755)
    assert state() == before and folder.stat().st_mtime_ns == folder_before


def test_the_command(hub, folder):
    command = [command_line.ROFORMER, "push", str(folder), REPO, "--with-code", "--private"]
    done = subprocess.run(command, env=hub.environment, capture_output=True, text=True, timeout=900)
    assert (done.returncode, done.stdout.strip()) == (0, f"{hub.url}/{REPO}"), done.stderr
    assert hub.repos[REPO].private and "model.py" in published(hub)
    assert hub.token not in done.stderr


def test_an_interrupted_push_goes_on(hub, folder, default_signals):
    rng = np.random.default_rng(0)
    large = {"a": rng.normal(size=PART_SIZE).astype(np.float32)}  # four parts
    save_file(large, folder / "model.safetensors", {"format": "pt"})
    before, reached = content(folder), []
    hub.before = lambda request: reached.append(request) if re.search("PUT /lfs/.*/3", request) else None
    hub.faults.append(Fault("PUT /lfs/.*/3", delay=8))
    command = [command_line.ROFORMER, "push", str(folder), REPO]
    pipe = subprocess.PIPE
    running = subprocess.Popen(command, env=hub.environment, stdout=pipe, stderr=pipe, text=True)
    try:
        for _ in range(600):
            if reached or running.poll() is not None:
                break
            time.sleep(0.1)
        os.kill(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=900)
    finally:
        running.kill()
    assert running.returncode == 130 and not out and "Traceback" not in err and hub.token not in err
    assert "interrupted" in err
    assert content(folder) == before and not published(hub)
    hub.before = lambda request: None
    push(folder, REPO)
    assert before.items() <= published(hub).items()


def test_the_command_names_what_is_left_out(hub, folder, monkeypatch, capsys):
    add(folder, "optimizer.pt", "[red]token")
    monkeypatch.setattr(sys, "argv", ["roformer", "push", str(folder), REPO])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert not ended.value.code and out.strip() == f"{hub.url}/{REPO}"
    (line,) = [line for line in err.splitlines() if line.startswith("note: ")]
    assert "optimizer.pt" in line


def test_the_command_says_what_is_missing(hub, folder, monkeypatch, capsys):
    (folder / "vocab.txt").unlink()
    monkeypatch.setattr(sys, "argv", ["roformer", "push", str(folder), REPO])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert ended.value.code == 1 and not out
    (line,) = [line for line in err.splitlines() if line.startswith("roformer: ")]
    assert_states(line, folder, "vocab.txt", "tokenizer.json")
    assert "Traceback" not in err and not hub.requests
