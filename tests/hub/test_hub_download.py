"""`pull`: every byte is checked, DIR is whole or not there, and the cache serves where there is no connection."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import command_line, fake_time, hub_server
from helpers.hub_server import Blob, Fault, Repo
from helpers.messages import assert_states, refused
from helpers.properties import max_examples
from helpers.small_models import small_model
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, cli
from modeling_roformer.hub import HubError, pull, push
from modeling_roformer.hub.checksums import sums_of

fake_time, hub = fake_time.fake_time, hub_server.hub  # the fixtures
REPO = "somebody/model"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "今天", "天气", "很", "好", "。"]
WEIGHTS = np.random.default_rng(0).bytes(3000)
FILES = {
    ".gitattributes": Blob(b"*.safetensors filter=lfs\n"),
    "config.json": Blob(b'{"model_type": "roformer"}'),
    "model.safetensors": Blob(WEIGHTS, lfs=True),
    "sub/词.txt": Blob("词\n".encode()),
    "empty.txt": Blob(b""),
}


@pytest.fixture
def repo(hub):
    return put(hub, FILES)


def put(hub, files, branch="main"):
    repo = hub.repos.setdefault(REPO, Repo())
    hub.objects |= {blob.sha256: blob.data for blob in files.values() if blob.lfs}
    repo.commit(branch, dict(files), "put")
    return repo


def run():
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def expected(files=FILES):
    return {name: blob.data for name, blob in files.items()}


def beside(folder):
    return sorted(path.name for path in folder.parent.iterdir() if folder.name in path.name)


def downloads(hub):
    return [request for request in hub.requests if request.startswith(("GET /cdn", f"GET /{REPO}/resolve"))]


def in_cache(hub):
    return sorted(Path(hub.environment["HF_HUB_CACHE"]).glob("models--*/blobs/*"))


def test_all_files_arrive(hub, repo, tmp_path):
    pulled = pull(REPO, tmp_path / "to" / "here")
    assert content(tmp_path / "to" / "here") == expected()
    assert (pulled.commit, pulled.files) == (repo.branches["main"], len(FILES))
    assert pulled.size == sum(len(blob.data) for blob in FILES.values())
    assert pulled.commit in str(pulled) and "here" in str(pulled)
    assert not hub.leaks, "the storage got the Hub's token"
    assert not any(path.is_symlink() for path in (tmp_path / "to").rglob("*"))


def test_revisions(hub, repo, tmp_path):
    first = repo.branches["main"]
    changed = FILES | {"config.json": Blob(b'{"model_type": "other"}')}
    repo.tags["v1"] = first
    put(hub, changed, "feature/x")
    for revision in (first, "v1", "main"):
        pull(REPO, tmp_path / revision, revision=revision)
        assert content(tmp_path / revision) == expected()
    pull(REPO, tmp_path / "branch", revision="feature/x")
    assert content(tmp_path / "branch") == expected(changed)
    with refused(HubError, REPO, "revision"):
        pull(REPO, tmp_path / "nothing", revision="nothing")


def test_what_was_pushed_gives_equal_logits(hub, tmp_path):
    model = small_model(RoFormerForMaskedLM, vocab_size=len(VOCABULARY))
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    push(tmp_path / "model", REPO)
    pull(REPO, tmp_path / "pulled")
    assert content(tmp_path / "model").items() <= content(tmp_path / "pulled").items()
    inputs = torch.tensor([[2, 5, 6, 4, 8, 9, 3]])
    with torch.no_grad():
        logits = RoFormerForMaskedLM.from_pretrained(tmp_path / "pulled")(inputs).logits
        assert torch.equal(logits, model(inputs).logits)


def test_a_folder_that_is_there_is_kept_or_replaced(hub, repo, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    pull(REPO, folder)  # an empty one is as none
    (folder / "old.txt").write_text("old")
    hub.requests.clear()
    with refused(FileExistsError, folder, "--force"):
        pull(REPO, folder)
    assert not hub.requests and (folder / "old.txt").exists()
    hub.faults.append(Fault("HEAD .*config.json", status=403))
    with pytest.raises(HubError):
        pull(REPO, folder, force=True)
    assert content(folder) == expected() | {"old.txt": b"old"}, "the old one was lost before the new one was whole"
    pull(REPO, folder, force=True)
    assert content(folder) == expected() and beside(folder) == ["here"]
    (tmp_path / "file").write_text("x")
    with refused(FileExistsError, tmp_path / "file"):
        pull(REPO, tmp_path / "file", force=True)


DAMAGE = {
    "flipped byte, large": (
        Fault("GET /cdn/", corrupt=True),
        ["model.safetensors", "checksum", FILES["model.safetensors"].sha256],
    ),
    "flipped byte, small": (
        Fault("GET .*/config.json", corrupt=True),
        ["config.json", "checksum", FILES["config.json"].git_oid],
    ),
    "truncated, large": (Fault("GET /cdn/", truncate=1000), ["size"]),
    "truncated, small": (Fault("GET .*/config.json", truncate=10), ["size"]),
    "wrong ETag, large": (
        Fault("HEAD .*/model.safetensors", headers={"X-Linked-ETag": f'"{"0" * 64}"'}),
        ["ETag", "model.safetensors", "0" * 64],
    ),
    "wrong ETag, small": (
        Fault("HEAD .*/config.json", headers={"ETag": f'"{"0" * 40}"'}),
        ["ETag", "config.json", "0" * 40],
    ),
    "no ETag": (Fault("HEAD .*/config.json", headers={"ETag": None}), ["ETag", "config.json", None]),
    "an ETag that is a path": (
        Fault("HEAD .*/config.json", headers={"ETag": '"../../../stolen"'}),
        ["ETag", "config.json", "../../../stolen"],
    ),
    "no commit": (Fault("HEAD .*/config.json", headers={"X-Repo-Commit": None}, skip=1), ["X-Repo-Commit"]),
    "401": (Fault("GET .*/tree/", status=401), ["token", "401", "hf auth login", "HF_TOKEN"]),
    "403": (Fault("GET .*/tree/", status=403), ["token", f"read {REPO}", "403", "hf auth login", "HF_TOKEN"]),
    "404": (Fault("GET .*/tree/", status=404), [REPO, "404"]),
    "409": (Fault("GET .*/tree/", status=409), ["HTTP 409"]),
    "413": (Fault("GET .*/tree/", status=413), ["too large", "413"]),
    "403 of a file": (Fault("GET /cdn/", status=403), ["token", f"read {REPO}", "403"]),
    "404 of a file": (Fault("GET /cdn/", status=404), [REPO, "404"]),
    "403 of a file's metadata": (Fault("HEAD .*/config.json", status=403), ["token", f"read {REPO}", "403"]),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_what_is_not_right_is_not_written(hub, repo, tmp_path, fake_time, case):
    fault, facts = DAMAGE[case]
    hub.faults.append(Fault(**vars(fault)))
    with refused(HubError, "nothing", *facts) as caught:
        pull(REPO, tmp_path / "here")
    assert hub.token not in str(caught.value)
    assert hub.faults[0].times == 0 and not fake_time.slept and beside(tmp_path / "here") == []
    hub.faults.clear()
    assert pull(REPO, tmp_path / "here") and content(tmp_path / "here") == expected(), "the cache kept what was wrong"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_listing_that_is_wrong_is_not_believed(hub, repo, tmp_path, monkeypatch, name):
    """The Hub lists, and names by ETag, another content than it sends."""
    wrong = Blob(b"something else", lfs=FILES[name].lfs)
    entry, etag = wrong.entry(name), wrong.sha256 if wrong.lfs else wrong.git_oid
    plain = Blob.entry
    monkeypatch.setattr(Blob, "entry", lambda blob, path: entry if path == name else plain(blob, path))
    headers = {"X-Linked-ETag" if wrong.lfs else "ETag": f'"{etag}"', "X-Linked-Size": None, "Content-Length": None}
    if not wrong.lfs:
        headers["Content-Length"] = str(len(FILES[name].data))
    hub.faults.append(Fault(f"HEAD .*/{name}", headers=headers, times=9))
    with refused(HubError, name, "checksum", etag):
        pull(REPO, tmp_path / "here")
    assert beside(tmp_path / "here") == [] and not [path for path in in_cache(hub) if path.name == etag]


def test_a_file_broken_in_the_cache_is_fetched_anew(hub, repo, tmp_path, monkeypatch):
    pull(REPO, tmp_path / "first")
    blob = next(path for path in in_cache(hub) if path.name == FILES["model.safetensors"].sha256)
    broken = bytearray(WEIGHTS)
    broken[7] ^= 1
    blob.write_bytes(broken)
    with refused(HubError, "model.safetensors", "changed in the cache"):
        pull(REPO, tmp_path / "second", local_files_only=True)
    assert beside(tmp_path / "second") == []
    hub.requests.clear()
    pull(REPO, tmp_path / "second")
    assert content(tmp_path / "second") == expected() and blob.read_bytes() == WEIGHTS
    assert downloads(hub) == [f"GET /cdn/{FILES['model.safetensors'].sha256}"]


def test_what_arrived_is_not_fetched_again(hub, repo, tmp_path, fake_time):
    hub.faults.append(Fault("HEAD .*/词.txt", status=403))
    with pytest.raises(HubError):
        pull(REPO, tmp_path / "here")
    arrived = set(downloads(hub))
    assert arrived and beside(tmp_path / "here") == []
    hub.requests.clear()
    pull(REPO, tmp_path / "here")
    assert content(tmp_path / "here") == expected() and not set(downloads(hub)) & arrived
    hub.requests.clear()
    pull(REPO, tmp_path / "again")
    assert not downloads(hub)


@pytest.mark.parametrize("reset", [False, True])
def test_a_download_that_breaks_off_goes_on(hub, repo, tmp_path, fake_time, reset):
    hub.faults.append(Fault("GET /cdn/", cut=1000, reset=reset, times=3))
    pull(REPO, tmp_path / "here")
    assert content(tmp_path / "here") == expected() and hub.faults[0].times == 0
    assert fake_time.slept == ([1, 2, 4] if reset else [])
    hub.faults.append(Fault("GET /cdn/", cut=1000, reset=reset, times=99))
    for path in in_cache(hub):
        path.unlink()
    with refused(HubError, "nothing", 5):
        pull(REPO, tmp_path / "there")


@pytest.mark.parametrize("how", ["argument", "setting", "option"])
def test_offline_from_the_cache(hub, repo, tmp_path, monkeypatch, capsys, how):
    with refused(HubError, "cache", REPO, "main"):
        pull(REPO, tmp_path / "early", local_files_only=True)
    pull(REPO, tmp_path / "online")
    hub.requests.clear()
    if how == "setting":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    if how == "option":
        monkeypatch.setattr(sys, "argv", ["roformer", "pull", REPO, str(tmp_path / "here"), "--local-files-only"])
        assert run() == 0 and repo.branches["main"] in capsys.readouterr().out
    else:
        pull(REPO, tmp_path / "here", local_files_only=how == "argument")
    assert content(tmp_path / "here") == expected() and not hub.requests


def test_offline_with_a_file_that_is_gone_or_unknown(hub, repo, tmp_path):
    pull(REPO, tmp_path / "online")
    snapshot = Path(hub.environment["HF_HUB_CACHE"]) / "models--somebody--model/snapshots" / repo.branches["main"]
    link = snapshot / "config.json"
    data = link.read_bytes()
    link.unlink()
    with refused(HubError, "cache", REPO, "main"):
        pull(REPO, tmp_path / "here", local_files_only=True)
    link.write_bytes(data)  # as where the system has no links: git's own id of the file is checked
    pull(REPO, tmp_path / "here", local_files_only=True)
    link.write_bytes(data + b" ")
    with refused(HubError, "config.json", "changed in the cache"):
        pull(REPO, tmp_path / "there", local_files_only=True)
    weights = snapshot / "model.safetensors"
    weights.unlink(), link.write_bytes(data), weights.write_bytes(WEIGHTS)
    pull(REPO, tmp_path / "there", local_files_only=True)
    assert content(tmp_path / "there") == expected()


def test_offline_after_from_pretrained(hub, tmp_path):
    """It reads, and leaves in the cache, less than the whole repository: enough, where that is a whole model."""
    from transformers import AutoTokenizer

    model = RoFormerForMaskedLM(
        RoFormerConfig(vocab_size=10, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    )
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    push(tmp_path / "model", REPO)
    for cached in Path(hub.environment["HF_HUB_CACHE"]).glob("models--*"):  # the card that push looked for
        subprocess.run(["rm", "-r", str(cached)], check=True)
    RoFormerForMaskedLM.from_pretrained(REPO)
    with refused(HubError, "cache", REPO, "tokenizer", "vocab.txt", "tokenizer.json"):
        pull(REPO, tmp_path / "here", local_files_only=True)
    AutoTokenizer.from_pretrained(REPO)
    pull(REPO, tmp_path / "here", local_files_only=True)
    pulled, model_files = content(tmp_path / "here"), content(tmp_path / "model")
    assert {name: pulled[name] for name in ("model.safetensors", "config.json", "vocab.txt")} == {
        name: model_files[name] for name in ("model.safetensors", "config.json", "vocab.txt")
    }


NAMES = [
    "../stolen",
    "a/../../stolen",
    "/etc/stolen",
    "..",
    "C:/stolen",
    "C:stolen",
    "a\\..\\stolen",
    "\\\\host\\x",
    "a\0b",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_lead_elsewhere_are_refused(hub, tmp_path, name):
    put(hub, FILES | {name: Blob(b"stolen")})
    (tmp_path / "deep").mkdir()
    before = set(tmp_path.rglob("*"))
    with refused(HubError, "nothing", repr(name), "outside"):
        pull(REPO, tmp_path / "deep" / "here")
    assert {path for path in tmp_path.rglob("*") if "hf_home" not in path.parts} <= before and not downloads(hub)


GIT_NAMES = [
    ".git/config",
    "sub/.git",
    ".GIT/config",
    "sub/.Git/hooks/post-checkout",
    ".git./config",
    ".git . /config",
    "git~1/config",
    "GIT~1 /config",
    ".git::$INDEX_ALLOCATION/config",
    ".g\u200cit/config",
    "\ufeff.gi\u206ft/config",
]


@pytest.mark.parametrize("name", GIT_NAMES)
def test_names_that_git_takes_commands_from_are_refused(hub, tmp_path, name):
    put(hub, FILES | {name: Blob(b"[core]\n\tfsmonitor = touch stolen\n")})
    with refused(HubError, "nothing", repr(name), "git"):
        pull(REPO, tmp_path / "here")
    assert beside(tmp_path / "here") == [] and not downloads(hub) and not in_cache(hub)


# Without any name that git refuses, a folder of which git is asked for its settings.
BARE = {
    "HEAD": b"ref: refs/heads/main\n",
    "config": b"[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch stolen\n",
}


@pytest.mark.parametrize("folder", ["", "sub/"])
@pytest.mark.parametrize("others", [["objects/a", "refs/a"], ["Objects/a/b", "REFS/heads/a"], ["commondir"]])
def test_a_repository_of_git_under_no_name_is_refused(hub, tmp_path, folder, others):
    files = BARE | dict.fromkeys(others, b"a")
    put(hub, FILES | {f"{folder}{name}": Blob(data) for name, data in files.items()})
    with refused(HubError, "nothing", repr(folder.rstrip("/") or "."), "git"):
        pull(REPO, tmp_path / "here")
    assert beside(tmp_path / "here") == [] and not downloads(hub) and not in_cache(hub)


def test_names_that_only_look_like_gits(hub, tmp_path):
    names = [
        ".gitattributes",
        ".gitignore",
        "git/config",
        ".github/x",
        "a.git/b",
        "HEAD",
        "refs/x",
        "x/objects/y",
        "git~2",
    ]
    files = {name: Blob(b"harmless\n") for name in names}
    put(hub, files)
    pull(REPO, tmp_path / "here")
    assert content(tmp_path / "here") == expected(files)


def test_a_list_that_grows_is_not_followed(hub, repo, tmp_path):
    """Once everything is checked, huggingface_hub is asked to complete its cache, and asks for the list again."""
    asked, tree = [], repo.commits[repo.branches["main"]]

    def grow(request):
        if "/tree/" in request:
            asked.append(request)
            if len(asked) == 2:
                tree[".git/config"] = Blob(b"stolen")

    hub.before = grow
    pull(REPO, tmp_path / "here")
    assert len(asked) == 2 and content(tmp_path / "here") == expected()
    assert not list(Path(hub.environment["HF_HUB_CACHE"]).rglob(".git"))


def test_the_command_refuses_gits_files_in_a_sentence(hub, tmp_path, monkeypatch, capsys):
    put(hub, FILES | {".git/config": Blob(b"")})
    monkeypatch.setattr(sys, "argv", ["roformer", "pull", REPO, str(tmp_path / "here")])
    assert run() == 1
    out, err = capsys.readouterr()
    (line,) = [line for line in err.splitlines() if line.startswith("roformer: ")]
    assert not out and "Traceback" not in err
    assert_states(line, "'.git/config'", "nothing")


@max_examples(40)
@given(
    files=st.dictionaries(
        st.lists(st.text("ab.词 -", min_size=1, max_size=4), min_size=1, max_size=3).map("/".join),
        st.tuples(st.binary(max_size=200), st.booleans()),
        max_size=4,
    )
)
def test_any_tree_comes_back_or_is_refused(hub, tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("any") / "here"
    put(hub, {name: Blob(data, lfs=lfs and bool(data)) for name, (data, lfs) in files.items()})
    try:
        pull(REPO, folder)
    except OSError as error:
        assert "\n" not in str(error) and str(error) and beside(folder) == []
    else:
        assert content(folder) == {str(Path(name)): data for name, (data, _) in files.items()}


@given(st.binary(max_size=300))
def test_sums_are_those_of_git_and_the_hub(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("sums") / "file"
    path.write_bytes(data)
    with open(path, "rb") as file:
        sums = sums_of(file)
    assert sums.sha256 == hashlib.sha256(data).hexdigest() and sums.size == len(data)
    assert sums.blob_id == Blob(data).git_oid
    git = subprocess.run(["git", "hash-object", str(path)], capture_output=True, text=True) if len(data) < 3 else None
    assert git is None or sums.blob_id == git.stdout.strip()


def test_a_private_repository_needs_its_owner(hub, repo, tmp_path, monkeypatch):
    repo.private = True
    with refused(HubError, "token", "Authorization", "hf auth login"):
        pull(REPO, tmp_path / "here", token="hf_unknown")
    monkeypatch.delenv("HF_TOKEN")
    with refused(HubError, REPO, 404):
        pull(REPO, tmp_path / "here")
    pull(REPO, tmp_path / "here", token=hub.token)
    assert content(tmp_path / "here") == expected()


def test_a_public_repository_needs_no_token(hub, repo, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    pull(REPO, tmp_path / "here")
    assert content(tmp_path / "here") == expected()


def test_bad_names_cause_no_traffic(hub, tmp_path):
    with pytest.raises(ValueError, match="Repo id"):
        pull("a/b/c", tmp_path / "here")
    assert not hub.requests and beside(tmp_path / "here") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing(hub, repo, tmp_path, number, default_signals):
    reached = []
    hub.before = lambda request: reached.append(request) if request.startswith("GET /cdn/") else None
    hub.faults.append(Fault("GET /cdn/", delay=8))
    command = [command_line.ROFORMER, "pull", REPO, str(tmp_path / "here")]
    pipe = subprocess.PIPE
    running = subprocess.Popen(command, env=hub.environment, stdout=pipe, stderr=pipe, text=True)
    try:
        for _ in range(600):
            if reached or running.poll() is not None:
                break
            time.sleep(0.1)
        os.kill(running.pid, number)
        out, err = running.communicate(timeout=900)
    finally:
        running.kill()
    assert running.returncode == 128 + number and not out and "Traceback" not in err and hub.token not in err
    assert ("interrupted" in err) == (number == signal.SIGINT)
    assert beside(tmp_path / "here") == []
    hub.before = lambda request: None
    hub.faults.clear(), hub.requests.clear()
    pull(REPO, tmp_path / "here")
    assert content(tmp_path / "here") == expected()
    assert len(downloads(hub)) <= 3, "small files had arrived"


def test_the_command(hub, repo, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "here"
    monkeypatch.setattr(sys, "argv", ["roformer", "pull", REPO, str(folder), "--revision", "main"])
    assert run() == 0
    out, err = capsys.readouterr()
    assert str(folder) in out and repo.branches["main"] in out and not err
    assert run() == 1
    out, err = capsys.readouterr()
    assert not out and err.startswith("roformer: ") and "--force" in err and len(err.splitlines()) == 1
    (folder / "config.json").write_text('{"model_type": "old"}')
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--force"])
    assert run() == 0 and content(folder) == expected()
