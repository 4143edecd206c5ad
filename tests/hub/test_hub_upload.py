"""`push`: whole folders arrive in one commit, incomplete ones cause no traffic, and every failure is one sentence."""

import json
import math
import os
import re
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.exporting import write_graph
from helpers.hub_server import Fault, content, interrupt, published
from helpers.messages import assert_states, refused
from huggingface_hub import HfApi, ModelCard, snapshot_download
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_weights

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM
from modeling_roformer.hub import HubError, push, upload

REPO = "somebody/model"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "今天", "天气", "很", "好", "。"]
CARD = "---\nlicense: mit\n---\n\n# Mine\n"


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """The waits between tries, of which there are three."""
    slept = []
    monkeypatch.setattr(upload, "sleep", slept.append)
    return slept


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "my-model"
    torch.manual_seed(0)
    config = RoFormerConfig(
        vocab_size=len(VOCABULARY), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    RoFormerForMaskedLM(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "RoFormerTokenizer"}')
    return folder


def add(folder, *names, text="x"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("with_code", [False, True])
def test_a_folder_arrives_whole_in_one_commit(hub, folder, with_code):
    before, folder_time = content(folder), folder.stat().st_mtime_ns
    # The owner may be left out.
    assert push(folder, "model", with_code=with_code, commit_message="first") == f"{hub.url}/{REPO}"
    assert content(folder) == before and folder.stat().st_mtime_ns == folder_time, "push wrote into the folder"
    arrived = published(hub)
    replaced = {"config.json", "tokenizer_config.json"} if with_code else set()
    assert {name: arrived[name] for name in before.keys() - replaced} == {
        name: before[name] for name in before.keys() - replaced
    }
    assert {name for name in arrived.keys() - before.keys() if not name.endswith(".py")} == {"README.md"}
    assert ("model.py" in arrived) == with_code
    assert list(hub.repos[REPO].messages.values()) == ["initial commit", "first"] and not hub.repos[REPO].private
    loaded, info = RoFormerForMaskedLM.from_pretrained(REPO, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    for name, tensor in load_file(folder / "model.safetensors").items():
        assert np.array_equal(loaded.state_dict()[name].numpy(), tensor)


@pytest.mark.parametrize("external", [False, True])
def test_a_folder_for_onnx_runtime_arrives_whole(hub, folder, external):
    write_graph(folder, external)
    (folder / "model.safetensors").unlink()
    (folder / "README.md").write_text("# A graph, with `import modeling_roformer`\n", encoding="utf-8")
    push(folder, REPO)
    assert published(hub) == content(folder) and ("onnx/model.onnx_data" in published(hub)) == external


def test_a_graph_without_its_data_is_not_sent(hub, folder, monkeypatch):
    write_graph(folder, external=True)
    (folder / "model.safetensors").unlink()
    data = folder / "onnx" / "model.onnx_data"
    data.rename(folder / "onnx" / ".hidden")
    with refused(ValueError, folder / "onnx" / "model.onnx", "model.onnx_data"):
        push(folder, REPO)
    told = []
    monkeypatch.setitem(sys.modules, "onnx", None)  # as if it were not installed
    push(folder, REPO, tell=told.append)
    assert_states(told[0], folder / "onnx" / "model.onnx", "onnx is not installed")


def test_a_graph_alone_does_not_replace_the_config_of_weights(hub, folder):
    push(folder, REPO)
    before = published(hub)
    write_graph(folder, external=False)
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    with refused(HubError, folder, "config.json", "onnx/"):
        push(folder, REPO)
    assert published(hub) == before
    (folder.parent / "model.safetensors").rename(folder / "model.safetensors")
    push(folder, REPO)
    assert "onnx/model.onnx" in published(hub)


def test_new_weights_do_not_get_the_dense_of_others(hub, folder):
    add(folder, "modules.json", "2_Dense/model.safetensors")
    push(folder, REPO)
    before = published(hub)
    (folder / "modules.json").unlink()
    (folder / "2_Dense" / "model.safetensors").unlink()
    with refused(HubError, "2_Dense/model.safetensors", "modules.json", "convert"):
        push(folder, REPO)
    assert published(hub) == before
    add(folder, "modules.json")
    push(folder, REPO)


PATH = "/home/me/secret-customer/model-3"
SETTINGS = {
    "config.json": {"_name_or_path": PATH, "encoder": {"_name_or_path": PATH + "/"}, "label2id": {"/a/b": 0}},
    "tokenizer_config.json": {"name_or_path": "C:\\secret-customer\\model-3", "tokenizer_file": PATH, "x": "/a/b"},
    "generation_config.json": {"_name_or_path": "../secret-customer/model-3"},
    "adapter_config.json": {"base_model_name_or_path": "secret-customer/of/mine/model-3", "revision": "a/b"},
}


@pytest.mark.parametrize("with_code", [False, True])
def test_paths_of_this_machine_stay_here(hub, folder, with_code):
    """Only the last part of a path in the settings is published; all other fields are sent as they are."""
    for name, fields in SETTINGS.items():
        path = folder / name
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | fields))
    push(folder, REPO, with_code=with_code)
    arrived = published(hub)
    assert not [name for name, data in arrived.items() if b"secret-customer" in data]
    sent = {name: json.loads(arrived[name]) for name in SETTINGS}
    assert sent["config.json"]["_name_or_path"] == sent["config.json"]["encoder"]["_name_or_path"] == "model-3"
    assert sent["config.json"]["label2id"] == {"/a/b": 0} and sent["config.json"]["hidden_size"] == 16
    assert sent["tokenizer_config.json"]["name_or_path"] == sent["tokenizer_config.json"]["tokenizer_file"] == "model-3"
    assert sent["tokenizer_config.json"]["x"] == "/a/b"
    assert sent["generation_config.json"] == {"_name_or_path": "model-3"}
    assert sent["adapter_config.json"] == {"base_model_name_or_path": "model-3", "revision": "a/b"}


def test_names_on_the_hub_are_sent_unless_they_are_folders_here(hub, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (folder / "sub").mkdir()
    for name, sent in {"somebody/a-model": "somebody/a-model", "a-model": "a-model", "my-model/sub": "sub"}.items():
        (folder / "generation_config.json").write_text(json.dumps({"_name_or_path": name}))
        push(folder, REPO)
        assert json.loads(published(hub)["generation_config.json"]) == {"_name_or_path": sent}


# Cards.


def test_a_missing_card_is_written_from_the_folder(hub, folder):
    push(folder, REPO)
    card = ModelCard(published(hub)["README.md"].decode())
    parameters = sum(tensor.size for tensor in load_file(folder / "model.safetensors").values())
    assert card.data.pipeline_tag == "fill-mask" and card.data.language == "zh"
    assert f"| parameters | {parameters:,} |" in card.text and "my-model" in card.text


def test_the_folders_own_card_is_kept_and_then_the_one_on_the_hub(hub, folder):
    (folder / "README.md").write_text(CARD)
    push(folder, REPO)
    assert published(hub)["README.md"].decode() == CARD
    (folder / "README.md").unlink()
    HfApi().upload_file(path_or_fileobj=b"# Edited there\n", path_in_repo="README.md", repo_id=REPO)
    push(folder, REPO)
    assert published(hub)["README.md"] == b"# Edited there\n"


@pytest.mark.parametrize("own_card", [None, CARD])
@pytest.mark.parametrize("fields", [{"norm_type": "rms_norm", "use_bias": False}, {"prefix_lm": True}, {}])
def test_the_card_says_what_the_model_needs(hub, folder, fields, own_card):
    RoFormerForMaskedLM(RoFormerConfig.from_pretrained(folder, **fields)).save_pretrained(folder)
    if own_card:
        (folder / "README.md").write_text(own_card)
    push(folder, REPO)
    card = published(hub)["README.md"].decode()
    assert card.startswith((own_card or "---\n").rstrip())
    assert ("import modeling_roformer" in card) == (bool(fields) or own_card is None)
    for _ in range(2):
        push(folder, REPO, with_code=True)
        with_code = published(hub)["README.md"].decode()
        assert with_code.count("trust_remote_code=True") == 1 and with_code.startswith((own_card or card).rstrip())


# Left out.


HIDDEN = [".git/config", ".cache/huggingface/token", "__pycache__/a.pyc", "sub/.DS_Store"]
OF_TRAINING = [
    "checkpoint-10/model.safetensors",
    "Checkpoint-11/vocab.txt",
    "runs/Nov21/events.out.tfevents.1.host.2.0",
    "optimizer.pt",
    "OPTIMIZER.PT",
    "scheduler.pt",
    "scaler.pt",
    "rng_state.pth",
    "rng_state_0.pth",
    "training_args.bin",
    "trainer_state.json",
    "wandb/run-1/config.yaml",
    "mlruns/0/meta.yaml",
    "lightning_logs/version_0/hparams.yaml",
    "optimizer.bin",
    "optimizer_1.bin",
    "scheduler.bin",
    "sampler.bin",
    "dl_state_dict.bin",
    "random_states_0.pkl",
    "custom_checkpoint_0.pkl",
    "pytorch_model_fsdp.bin",
    "pytorch_model_fsdp_0/x.distcp",
    "optimizer_0/x.distcp",
    "latest",
    "zero_to_fp32.py",
    "global_step5/mp_rank_00_model_states.pt",
    "logs/events.out.tfevents.1.host",
]
CREDENTIALS = [
    "id_rsa",
    "id_ed25519.pub",
    "server.pem",
    "sub/deploy.key",
    "keys.p12",
    ".env",
    ".env.local",
    "prod.env",
    ".netrc",
    "credentials.json",
    "aws_credentials",
    "Credentials",
    "secrets/a.txt",
    "Secret/x",
    "secrets.yaml",
    "client_secret_1.json",
    "my-service-account.json",
    "x-firebase-adminsdk-a.json",
    "api_key.txt",
    "password.txt",
    "kubeconfig",
    "token",
    "token.txt",
    "hf_token",
    "HF_TOKEN.txt",
    "my-token",
    "access_token.json",
    "sub/github-token.yml",
    "stored_tokens",
]
# Names that are near to those.
OF_THE_MODEL = [
    "special_tokens_map.json",
    "added_tokens.json",
    "tokens.txt",
    "token_counts.json",
    "tokenization.py",
    "keys.txt",
    "secretary.txt",
    "environment.yml",
    "latest.md",
    "runs.md",
    "optimizer.md",
    "pytorch_model.bin",
    "all_results.json",
    "tf_model.h5",
    "openvino/openvino_model.bin",
    "loss.png",
    "eval_results.json",
    "rng.txt",
    "monkey.txt",
    "sampler.py",
]


def test_files_of_training_and_tools_are_not_uploaded(hub, folder):
    told = []
    model = set(content(folder)) | {"README.md"}
    add(folder, *HIDDEN, *OF_TRAINING, *CREDENTIALS, *OF_THE_MODEL, text="{}")
    push(folder, REPO, tell=told.append)
    assert set(published(hub)) == model | set(OF_THE_MODEL)
    (sentence,) = told
    assert_states(sentence, "optimizer.pt, ", "checkpoint-10/, ", "more", "training")
    assert_states(sentence, "credentials.json, ", "credential")
    assert "DS_Store" not in sentence and ".git" not in sentence and "\n" not in sentence


KEYS = {
    "backup": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----\n",
    "later.txt": "The key of the server:\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n",
    "marked.txt": "\ufeff-----BEGIN PRIVATE KEY-----\nMIIE\n",
    "mail.asc": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOY\n",
    "login.txt": f"hf_{'aB3' * 12}\n",
    "upload.sh": f"export HF_TOKEN=hf_{'aB3' * 12}\n",
    "project-1a2b.json": json.dumps({"type": "x", "private_key": "-----BEGIN PRIVATE KEY-----\nMIIE\n"}, indent=2),
}


def test_a_key_is_known_by_its_content(hub, folder):
    told = []
    for name, text in KEYS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "how-to.md").write_text("A key begins with -----BEGIN PRIVATE KEY-----\n")
    push(folder, REPO, tell=told.append)
    assert not KEYS.keys() & published(hub).keys() and "how-to.md" in published(hub)
    assert_states(told[0], *KEYS, "credential")


@pytest.mark.parametrize("name", ["README.md", "config.json", "tokenizer_config.json"])
def test_a_key_in_a_file_that_every_push_needs_is_refused(hub, folder, name):
    settings = json.loads((folder / name).read_text()) if name.endswith(".json") else {}
    (folder / name).write_text(json.dumps(settings | {"hub_token": f"hf_{'aB3' * 12}"}))
    for with_code in (False, True):
        with refused(ValueError, folder / name, "token"):
            push(folder, REPO, with_code=with_code)
    assert not hub.requests


BAD_LINKS = {
    "a file elsewhere": ("notes.txt", "../outside/secret.txt"),
    "a folder elsewhere": ("docs", "../outside"),
    "in a folder": ("sub/docs", "../../outside"),
    "the folder itself": ("docs", "."),
    "nothing": ("notes.txt", "nothing.txt"),
    "itself": ("notes.txt", "notes.txt"),
    "a credential": ("notes.txt", "deploy.key"),
    "another cache's blob": ("notes.txt", f"../blobs/{'a' * 40}"),
}


@pytest.mark.parametrize("case", BAD_LINKS)
def test_links_that_lead_elsewhere_are_refused_unless_they_are_left_out(hub, folder, case):
    name, target = BAD_LINKS[case]
    add(folder.parent, "outside/secret.txt", f"blobs/{'a' * 40}", "my-model/deploy.key", "my-model/sub/x")
    (folder / "wandb").symlink_to("../outside")
    (folder / "id_rsa").symlink_to("../outside/secret.txt")
    push(folder, REPO, tell=lambda sentence: None)
    assert "id_rsa" not in published(hub) and not [name for name in published(hub) if name.startswith("wandb")]
    hub.requests.clear()
    (folder / name).symlink_to(target)
    with refused(ValueError, folder / name):
        push(folder, REPO)
    assert not hub.requests


def test_a_snapshot_of_the_cache_is_pushed(hub, folder, tmp_path):
    push(folder, REPO)
    snapshot = Path(snapshot_download(REPO))
    assert any(path.is_symlink() for path in snapshot.iterdir())
    push(snapshot, "somebody/copy")
    assert hub.repos["somebody/copy"].files() == hub.repos[REPO].files()
    hub.requests.clear()
    (snapshot / "notes.txt").symlink_to(folder / "config.json")
    with refused(ValueError, snapshot / "notes.txt", folder / "config.json"):
        push(snapshot, REPO)
    assert not hub.requests


# Refused before anything is sent.


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def index(weight_map):
    def change(folder):
        (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return change


def not_finite(dtype, value):
    def change(folder):
        weights = {"w": torch.ones(3, 2), "x": torch.tensor([1.0, value]).to(dtype)}
        save_weights(weights, folder / "model.safetensors", {"format": "pt"})

    return change


def code(**fields):
    return write("config.json", json.dumps({"model_type": "roformer"} | fields))


BROKEN = {
    "no config": (lambda f: (f / "config.json").unlink(), ["no config.json"]),
    "config that is no JSON": (write("config.json", "{"), ["config.json", "JSON"]),
    "config with a field twice": (write("config.json", '{"a": {"b": 1, "b": 2}}'), ["config.json", "'b'"]),
    "broken settings": (write("tokenizer_config.json", "nothing"), ["tokenizer_config.json", "JSON"]),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), ["no weights", "model.safetensors.index.json"]),
    "weights cut off": (lambda f: os.truncate(f / "model.safetensors", 3000), ["model.safetensors", "whole"]),
    "missing shard": (index({"a": "model-00002-of-00002.safetensors"}), ["model-00002-of-00002.safetensors", "names"]),
    "weights with NaN": (not_finite(torch.bfloat16, math.nan), ["model.safetensors", "x", "finite"]),
    "infinite weights": (not_finite(torch.float16, math.inf), ["model.safetensors", "x", "finite"]),
    "float8 with NaN": (not_finite(torch.float8_e4m3fn, math.nan), ["model.safetensors", "x", "finite"]),
    "code of a pipeline": (code(custom_pipelines={"x": {"impl": "model.X"}}), ["model.py", "--with-code"]),
    "code that is left out": (code(auto_map={"AutoModel": "latest.A"}), ["latest.py", "--with-code"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_incomplete_folder_causes_no_traffic(hub, folder, case):
    break_it, facts = BROKEN[case]
    break_it(folder)
    with refused(ValueError, *facts):
        push(folder, REPO)
    assert not hub.requests


def test_code_in_the_folder_or_in_another_repository_is_not_missed(hub, folder):
    config = json.loads((folder / "config.json").read_text())
    config["custom_pipelines"] = {"task": {"impl": "my_pipeline.MyPipeline", "pt": ["AutoModel"]}, "other": 3}
    config["auto_map"] = {"AutoModel": "somebody/else--model.A"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "my_pipeline.py").write_text("class MyPipeline: ...\n")
    push(folder, REPO)
    assert "my_pipeline.py" in published(hub)


def test_bad_arguments_cause_no_traffic(hub, folder, monkeypatch):
    with refused(ValueError, folder / "nothing"):
        push(folder / "nothing", REPO)
    with pytest.raises(ValueError, match="Repo id"):
        push(folder, "a/b/c")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with refused(ValueError, folder / "config.json", "model_type", "'bert'", "--with-code"):
        push(folder, REPO, with_code=True)
    assert not hub.requests
    monkeypatch.delenv("HF_TOKEN")
    with refused(HubError, "HF_TOKEN", "hf auth login", 401):
        push(folder, REPO)


# Faults of the Hub.


@pytest.fixture
def large(folder):
    """Weights of a megabyte, beside others."""
    values = np.random.default_rng(0).normal(size=1 << 18).astype(np.float32)
    save_file({"a": values}, folder / "model.fp16.safetensors", {"format": "pt"})
    return folder


ROUTES = {
    "create": "POST /api/repos/create",
    "info": "GET /api/models/somebody/model",
    "preupload": "POST .*/preupload/",
    "batch": "POST .*/objects/batch",
    "upload": "PUT /lfs/[0-9a-f]+$",
    "metadata": "POST /api/validate-yaml",
    "commit": "POST .*/commit/",
}
# In the last, the request was served, and the response broke off.
FAULTS = {"429": {"status": 429}, "503": {"status": 503}, "cut": {"cut": 0}, "late cut": {"cut": 5}}
PASSING = [(route, "503") for route in ROUTES] + [
    *[("upload", "500"), ("upload", "cut")],
    *[("commit", fault) for fault in ("429", "500", "502", "504", "cut", "late cut")],
]


@pytest.mark.parametrize("create_pr", [False, True])
@pytest.mark.parametrize(("route", "fault"), PASSING)
def test_a_push_survives_what_passes(hub, large, monkeypatch, route, fault, create_pr):
    """Also where huggingface_hub repeats a request by itself."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    (large / "README.md").write_text(CARD)
    if create_pr:
        HfApi().create_repo(REPO)
    hub.faults.append(Fault(ROUTES[route], **FAULTS.get(fault, {"status": int(fault) if fault.isdigit() else None})))
    address = push(large, REPO, commit_message="ours", create_pr=create_pr)
    assert create_pr or hub.faults[0].times == 0, "the fault was not met"
    assert content(large).items() <= published(hub, "refs/pr/1" if create_pr else "main").items()
    assert address == f"{hub.url}/{REPO}" + "/discussions/1" * create_pr
    assert list(hub.repos[REPO].messages.values()).count("ours") == 1, "published twice"


@pytest.mark.parametrize(("route", "fault"), [("info", "503"), ("commit", "429"), ("commit", "503"), ("commit", "cut")])
def test_a_push_ends_after_three_tries_and_can_be_repeated(hub, folder, waits, route, fault):
    HfApi().create_repo(REPO)
    hub.requests.clear()
    hub.faults.append(Fault(ROUTES[route], **FAULTS[fault], times=99))
    with refused(HubError, REPO, "repeated") as ended:
        push(folder, REPO)
    assert waits == [2, 8] and hub.token not in str(ended.value) and not published(hub)
    assert len([request for request in hub.requests if re.search(ROUTES[route], request)]) == 3
    hub.faults.clear()
    push(folder, REPO)
    assert content(folder).items() <= published(hub).items()


@pytest.mark.parametrize(
    ("fault", "facts"),
    [
        (Fault("POST .*/repos/create", status=401), ["hf auth login", 401]),
        (Fault("POST .*/preupload", status=403), ["HF_TOKEN", "write", 403]),
        (Fault("POST .*/preupload", status=404), [REPO, 404]),
        (Fault("POST .*/objects/batch", status=413), [413]),
        (Fault("POST .*/validate-yaml", status=400), ["injected 400"]),
        (Fault("POST .*/commit/", status=400), ["injected 400"]),
        (Fault("POST .*/commit/", status=409), [REPO, "changed"]),
        (Fault("POST .*/commit/", status=412), [REPO, "changed"]),
        (Fault("PUT /lfs/", status=403), ["HF_TOKEN", 403]),
    ],
    ids=lambda value: f"{value.route} {value.status}" if isinstance(value, Fault) else "",
)
def test_a_refusal_of_the_hub_is_told_in_one_sentence_at_once(hub, folder, waits, fault, facts):
    hub.faults.append(replace(fault))
    with refused(HubError, "nothing was published", *facts) as caught:
        push(folder, REPO)
    assert hub.token not in str(caught.value) and not published(hub) and not waits and hub.faults[0].times == 0


def test_tokens_that_may_not_write(hub, folder):
    hub.tokens["hf_reader"] = "somebody"
    hub.read_only.add("hf_reader")
    for token in ("hf_reader", "hf_unknown"):
        with refused(HubError, "hf auth login", "HF_TOKEN") as caught:
            push(folder, REPO, token=token)
        assert token not in str(caught.value)
    assert not published(hub)


def test_no_error_holds_the_token(hub, folder):
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


# Branches, private repositories and pull requests.


def test_a_branch_and_a_private_repository(hub, folder):
    assert push(folder, REPO, private=True, revision="trial").endswith(f"/{REPO}/tree/trial")
    assert hub.repos[REPO].private
    assert "model.safetensors" in published(hub, "trial") and not published(hub)
    push(folder, REPO, private=True)
    assert published(hub)


def test_private_is_not_promised_of_a_public_repository(hub, folder):
    push(folder, REPO)
    (folder / "unpublished.txt").write_text("x")
    with refused(HubError, REPO, "public", "private"):
        push(folder, REPO, private=True)
    assert "unpublished.txt" not in published(hub)


def test_a_pull_request_changes_no_branch(hub, folder):
    hub.tokens["hf_guest"] = "guest"
    push(folder, REPO)
    before = published(hub)
    (folder / "notes.txt").write_text("new")
    url = push(folder, REPO, create_pr=True, commit_message="Add notes", token="hf_guest")
    assert url == f"{hub.url}/{REPO}/discussions/1"
    assert published(hub) == before
    assert published(hub, "refs/pr/1")["notes.txt"] == b"new"
    assert hub.repos[REPO].pull_requests[0]["title"] == "Add notes"
    (folder / "notes.txt").unlink()
    with refused(HubError, REPO, "no pull request"):
        push(folder, REPO, create_pr=True)
    with refused(HubError, f"{REPO}-missing", 404):
        push(folder, f"{REPO}-missing", create_pr=True)


# The command.


def test_the_command(run, hub, folder):
    add(folder, "optimizer.pt", "checkpoint-[red]1")
    code, out, err = run("push", folder, REPO, "--with-code", "--private")
    assert (code, out.strip()) == (0, f"{hub.url}/{REPO}"), err
    assert hub.repos[REPO].private and "model.py" in published(hub) and hub.token not in err
    (note,) = [line for line in err.splitlines() if line.startswith("note: ")]
    assert_states(note, "optimizer.pt", "checkpoint-[red]1")
    (folder / "model.safetensors").unlink()
    code, out, err = run("push", folder, REPO)
    assert code == 1 and not out and err.startswith("roformer: ") and err.count("\n") == 1
    assert_states(err, folder, "no weights")


def test_an_interrupted_push_goes_on(hub, large, default_signals):
    interrupt(hub, "PUT /lfs/", "push", large, REPO)
    assert not published(hub)
    push(large, REPO)
    assert content(large).items() <= published(hub).items()
