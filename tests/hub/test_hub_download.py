"""`pull`: every byte is checked, DIR is whole or not there, and the cache serves where there is no connection."""

from pathlib import Path

import numpy as np
import pytest
from helpers.hub_server import Blob, Fault, Repo, content, interrupt
from helpers.messages import refused
from huggingface_hub import constants

from modeling_roformer.hub import HubError, pull

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


def expected(files=FILES):
    return {name: blob.data for name, blob in files.items()}


def beside(folder):
    return sorted(path.name for path in folder.parent.iterdir() if folder.name in path.name)


def downloads(hub):
    return [request for request in hub.requests if request.startswith(("GET /cdn", f"GET /{REPO}/resolve"))]


def test_all_files_arrive(hub, repo, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    pulled = pull(REPO, tmp_path / "to" / "here")
    assert content(tmp_path / "to" / "here") == expected()
    assert (pulled.commit, pulled.files) == (repo.branches["main"], len(FILES))
    assert pulled.size == sum(len(blob.data) for blob in FILES.values())
    assert pulled.commit in str(pulled) and "here" in str(pulled)
    assert not any(path.is_symlink() for path in (tmp_path / "to").rglob("*"))
    hub.requests.clear()
    pull(REPO, tmp_path / "again")
    assert not downloads(hub)


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
    with refused(HubError, REPO, "Revision"):
        pull(REPO, tmp_path / "nothing", revision="nothing")
    with pytest.raises(ValueError, match="Repo id"):
        pull("a/b/c", tmp_path / "here")


def test_a_folder_that_is_there_is_kept_or_replaced(hub, repo, tmp_path):
    folder = tmp_path / "here"
    pull(REPO, folder)
    (folder / "old.txt").write_text("old")
    hub.requests.clear()
    with refused(FileExistsError, folder, "--force"):
        pull(REPO, folder)
    assert not hub.requests
    hub.faults.append(Fault("GET /api/models/", status=403))
    with pytest.raises(HubError):
        pull(REPO, folder, force=True)
    assert content(folder) == expected() | {"old.txt": b"old"}, "the old one was lost before the new one was whole"
    with refused(FileExistsError, folder, "old.txt"):
        pull(REPO, folder, force=True)
    assert content(folder) == expected() | {"old.txt": b"old"}
    (folder / "old.txt").unlink()
    pull(REPO, folder, force=True)
    assert content(folder) == expected() and beside(folder) == ["here"]


DAMAGE = {
    "flipped byte, large": (
        Fault("GET /cdn/", corrupt=True),
        ["model.safetensors", FILES["model.safetensors"].git_oid],
    ),
    "flipped byte, small": (Fault("GET .*/config.json", corrupt=True), ["config.json", FILES["config.json"].git_oid]),
    "truncated": (Fault("GET /cdn/", truncate=1000), ["size"]),
    "401": (Fault("GET .*/tree/", status=401), ["401", "hf auth login"]),
    "403 of a file": (Fault("GET /cdn/", status=403), ["403", "HF_TOKEN"]),
    "404 of a file": (Fault("GET .*/config.json", status=404), ["404"]),
    "404": (Fault("GET /api/models/", status=404), [REPO, "404"]),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_download_is_not_written(hub, repo, tmp_path, case):
    fault, facts = DAMAGE[case]
    hub.faults.append(Fault(**vars(fault)))
    with refused(HubError, "nothing", *facts) as caught:
        pull(REPO, tmp_path / "here")
    assert hub.token not in str(caught.value)
    assert hub.faults[0].times == 0 and beside(tmp_path / "here") == []
    assert pull(REPO, tmp_path / "here") and content(tmp_path / "here") == expected(), "the cache kept what was wrong"


@pytest.mark.parametrize(("route", "fault"), [("GET /cdn/", {"cut": 1000}), ("GET .*/tree/", {"status": 503})])
def test_a_passing_failure_is_survived(hub, repo, tmp_path, monkeypatch, route, fault):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.faults.append(Fault(route, **fault))
    pull(REPO, tmp_path / "here")
    assert content(tmp_path / "here") == expected() and hub.faults[0].times == 0


def test_an_older_commit_of_the_cache_is_not_taken_for_the_new_one(hub, repo, tmp_path):
    pull(REPO, tmp_path / "here")
    hub.faults.append(Fault("GET /api/models/", status=403, times=9))
    with refused(HubError, 403):
        pull(REPO, tmp_path / "there")
    assert beside(tmp_path / "there") == []


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_broken_in_the_cache_is_fetched_anew(hub, repo, tmp_path, name):
    pull(REPO, tmp_path / "first")
    cached = Path(hub.environment["HF_HUB_CACHE"], "models--somebody--model", "snapshots", repo.branches["main"], name)
    data = bytearray(cached.read_bytes())
    data[7] ^= 1
    cached.write_bytes(data)
    hub.requests.clear()
    with refused(HubError, name, "cache", "checksum"):
        pull(REPO, tmp_path / "second")
    assert beside(tmp_path / "second") == []
    pull(REPO, tmp_path / "second")
    assert content(tmp_path / "second") == expected() and len(downloads(hub)) == 1


@pytest.mark.parametrize("setting", [False, True])
def test_offline_from_the_cache(hub, repo, tmp_path, monkeypatch, setting):
    with refused(HubError, "nothing", "cached"):
        pull(REPO, tmp_path / "here", local_files_only=True)
    pull(REPO, tmp_path / "online")
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", setting)
    pull(REPO, tmp_path / "here", local_files_only=not setting)
    assert content(tmp_path / "here") == expected() and not hub.requests
    snapshot = Path(hub.environment["HF_HUB_CACHE"]) / "models--somebody--model/snapshots" / repo.branches["main"]
    (snapshot / "config.json").unlink()
    with refused(HubError, "nothing"):
        pull(REPO, tmp_path / "there", local_files_only=True)
    assert beside(tmp_path / "there") == []


def test_a_private_repository_needs_its_owner(hub, repo, tmp_path, monkeypatch):
    repo.private = True
    with refused(HubError, "Authorization", "hf auth login"):
        pull(REPO, tmp_path / "here", token="hf_unknown")
    monkeypatch.delenv("HF_TOKEN")
    with refused(HubError, REPO, 404):
        pull(REPO, tmp_path / "here")
    pull(REPO, tmp_path / "here", token=hub.token)
    assert content(tmp_path / "here") == expected()


def test_an_interruption_leaves_nothing(hub, repo, tmp_path, default_signals):
    interrupt(hub, "GET /cdn/", "pull", REPO, tmp_path / "here")
    assert beside(tmp_path / "here") == []
    pull(REPO, tmp_path / "here")
    assert content(tmp_path / "here") == expected()


def test_the_command(run, hub, repo, tmp_path):
    command = ["pull", REPO, tmp_path / "here"]
    code, out, err = run(*command, "--revision", "main")
    assert code == 0 and not err and str(tmp_path / "here") in out and repo.branches["main"] in out
    code, out, err = run(*command)
    assert code == 1 and not out and err.startswith("roformer: ") and "--force" in err and err.count("\n") == 1
    (tmp_path / "here" / "config.json").write_text('{"model_type": "old"}')
    assert run(*command, "--force", "--local-files-only")[0] == 0 and content(tmp_path / "here") == expected()
