"""The test server itself: the real client agrees with it, and its faults are what they say."""

import hashlib

import pytest
from helpers import hub_server
from helpers.hub_server import PART_SIZE, Fault, resolve_url
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_session

hub = hub_server.hub  # the fixture

REPO = "somebody/model"
WEIGHTS = bytes(range(256)) * (PART_SIZE // 256 + 40)  # a little more than one part


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    (folder / "config.json").write_text('{"model_type": "roformer"}')
    (folder / "sub" / "词.txt").write_text("词\n", encoding="utf-8")
    (folder / "README.md").write_text("---\nlicense: mit\ntags:\n- roformer\n---\n# A card\n")
    return folder


@pytest.fixture
def api(hub):
    api = HfApi()
    api.create_repo(REPO)
    return api


def test_a_folder_comes_back_byte_by_byte(hub, api, folder):
    api.upload_folder(folder_path=folder, repo_id=REPO, commit_message="all of it")
    copy = snapshot_download(REPO)
    for path in folder.rglob("*"):
        if path.is_file():
            relative = path.relative_to(folder).as_posix()
            assert hub.repos[REPO].files()[relative] == path.read_bytes()
            with open(f"{copy}/{relative}", "rb") as file:
                assert file.read() == path.read_bytes()
    info = api.model_info(REPO)
    assert info.sha == hub.repos[REPO].branches["main"]
    assert {sibling.rfilename for sibling in info.siblings} >= {"config.json", "sub/词.txt"}
    assert info.card_data.license == "mit" and "roformer" in info.tags
    (weights,) = api.get_paths_info(REPO, "model.safetensors")
    assert weights.lfs.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert {entry.path for entry in api.list_repo_tree(REPO)} >= {"sub", "config.json"}
    assert not hub.leaks, "the storage got the Hub's token"


def test_old_revisions_branches_and_tags_stay_readable(hub, api, folder):
    first = api.upload_folder(folder_path=folder, repo_id=REPO).oid
    api.create_tag(REPO, tag="v1")
    (folder / "config.json").write_text('{"model_type": "other"}')
    second = api.upload_folder(folder_path=folder, repo_id=REPO).oid
    api.create_branch(REPO, branch="old", revision=first)
    assert first != second
    for revision, word in {first: "roformer", "v1": "roformer", "old": "roformer", second: "other"}.items():
        with open(hf_hub_download(REPO, "config.json", revision=revision)) as file:
            assert word in file.read()
    refs = api.list_repo_refs(REPO)
    assert {ref.name: ref.target_commit for ref in refs.branches} == {"main": second, "old": first}
    assert {ref.name: ref.target_commit for ref in refs.tags} == {"v1": first}


def test_a_second_push_of_the_same_sends_nothing(hub, api, folder):
    api.upload_folder(folder_path=folder, repo_id=REPO)
    commits = len(hub.repos[REPO].commits)
    hub.requests.clear()
    api.upload_folder(folder_path=folder, repo_id=REPO)
    assert len(hub.repos[REPO].commits) == commits
    assert not [request for request in hub.requests if request.startswith("PUT")]


def test_ranges_and_etags(hub, api, folder):
    api.upload_folder(folder_path=folder, repo_id=REPO)
    web = get_session()
    part = web.get(resolve_url(hub, REPO, "config.json"), headers={"Range": "bytes=2-11"})
    assert (part.status_code, part.content) == (206, b"model_type")
    assert part.headers["Content-Range"].startswith("bytes 2-11/")
    head = web.head(resolve_url(hub, REPO, "model.safetensors"), follow_redirects=False)
    assert head.status_code == 302 and head.headers["X-Repo-Commit"] == hub.repos[REPO].branches["main"]
    assert head.headers["X-Linked-Size"] == str(len(WEIGHTS))
    assert head.headers["X-Linked-ETag"].strip('"') == hashlib.sha256(WEIGHTS).hexdigest()
    beyond = web.get(head.headers["Location"], headers={"Range": f"bytes={len(WEIGHTS)}-"})
    assert beyond.status_code == 416


def test_who_may_do_what(hub, api, folder):
    hub.tokens["hf_other"] = "other"
    hub.tokens["hf_reader"] = "somebody"
    hub.read_only.add("hf_reader")
    api.create_repo("somebody/secret", private=True)
    assert HfApi().whoami()["name"] == "somebody"
    for token, status in {"hf_other": 403, "hf_reader": 403, "hf_unknown": 401, False: 401}.items():
        with pytest.raises(HfHubHTTPError) as refused:
            HfApi(token=token).upload_file(path_or_fileobj=b"x", path_in_repo="x", repo_id=REPO)
        assert refused.value.response.status_code == status
    for token in ("hf_other", False):
        with pytest.raises(RepositoryNotFoundError):
            HfApi(token=token).model_info("somebody/secret")
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("somebody/nothing")
    with pytest.raises(RevisionNotFoundError):
        api.model_info(REPO, revision="nothing")
    with pytest.raises(EntryNotFoundError):
        hf_hub_download(REPO, "nothing.txt")


def test_bad_metadata_is_refused(api):
    with pytest.raises(ValueError, match="Invalid metadata"):
        api.upload_file(path_or_fileobj=b"---\ntags: 3\n---\n", path_in_repo="README.md", repo_id=REPO)


def test_faults(hub, api, folder):
    hub.faults.append(Fault("PUT /lfs/.*/1", status=503))
    api.upload_folder(folder_path=folder, repo_id=REPO)  # the client tries an upload again
    assert hub.repos[REPO].files()["model.safetensors"] == WEIGHTS

    hub.faults.append(Fault("POST .*/commit/", status=503))
    with pytest.raises(HfHubHTTPError, match="503"):
        api.upload_file(path_or_fileobj=b"x", path_in_repo="x", repo_id=REPO)
    assert "x" not in hub.repos[REPO].files()

    hub.faults.append(Fault("GET /cdn/", cut=1000))  # the client goes on from there
    with open(hf_hub_download(REPO, "model.safetensors"), "rb") as file:
        assert file.read() == WEIGHTS

    hub.faults.append(Fault("GET .*config.json", truncate=3))
    with pytest.raises(OSError, match="Consistency check failed"):
        hf_hub_download(REPO, "config.json")
    hub.faults.append(Fault("HEAD .*config.json", headers={"X-Repo-Commit": None}))
    with pytest.raises(LocalEntryNotFoundError):
        hf_hub_download(REPO, "config.json")
    assert all(fault.times == 0 for fault in hub.faults)
