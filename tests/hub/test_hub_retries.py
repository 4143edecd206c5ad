"""Retries of requests that the Hub cannot serve for the moment: five tries each, 90 seconds in all."""

import hashlib
import json
import math
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import numpy as np
import pytest
from helpers import fake_time, hub_server
from helpers.fake_time import NOON
from helpers.hub_server import MODEL, PART_SIZE, ROUTES, Answer, Blob, Fault, Handler
from helpers.messages import assert_states, refused
from helpers.properties import max_examples
from huggingface_hub import constants
from huggingface_hub.utils._xet import abort_xet_session
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from modeling_roformer.conversion.inspection.info import info
from modeling_roformer.hub import HubError, pull, push
from modeling_roformer.hub import retries as hub_retries
from modeling_roformer.hub.errors import NO_CONNECTION

fake_time, hub = fake_time.fake_time, hub_server.hub  # the fixtures
REPO = "somebody/model"
PUSH_ROUTES = {
    "create": "POST /api/repos/create",
    "branch": "POST /api/models/.*/branch/",
    "card": "HEAD .*/README.md",
    "preupload": "POST .*/preupload/",
    "batch": "POST .*/objects/batch",
    "upload": "PUT /lfs/[0-9a-f]+$",
    "part": "PUT /lfs/.*/2$",
    "complete": "POST /lfs/[0-9a-f]+$",
    "verify": "POST /lfs/verify",
    "metadata": "POST /api/validate-yaml",
    "head": "GET /api/models/.*/revision/",
    "commit": "POST .*/commit/",
}
PULL_ROUTES = {
    "resolve": "GET /api/models/somebody/model$",
    "tree": "GET .*/tree/",
    "metadata": "HEAD .*/resolve/.*/config.json",
    "file": "GET .*/resolve/.*/config.json",
    "large": "GET /cdn/",
}
FAULTS = {
    **{str(status): Fault("", status=status) for status in (429, 500, 502, 503, 504)},
    "cut": Fault("", cut=0),
    "late cut": Fault("", cut=5),  # it was done, and the answer broke off
}
# Each route meets each kind of fault, one route all of them.
PUSH_CASES = [(r, f) for r in PUSH_ROUTES for f in FAULTS if r == "commit" or f in ("429", "503", "cut", "late cut")]
PULL_CASES = [(r, f) for r in PULL_ROUTES for f in FAULTS if r == "tree" or f in ("429", "503", "cut", "late cut")]
PULL_CASES.remove(("metadata", "late cut"))  # an answer to HEAD has no body that could break off


@pytest.fixture(scope="module")
def weights():
    """One file that is sent whole, and one that is sent in three parts."""
    rng = np.random.default_rng(0)
    sizes = {"model-00001-of-00002.safetensors": 1000, "model-00002-of-00002.safetensors": PART_SIZE * 5 // 8}
    return {name: {name[:11]: rng.normal(size=size).astype(np.float32)} for name, size in sizes.items()}


@pytest.fixture
def folder(tmp_path, weights):
    folder = tmp_path / "my-model"
    folder.mkdir()
    for name, tensors in weights.items():
        save_file(tensors, folder / name)
    weight_map = {tensor: name for name, tensors in weights.items() for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text('{"model_type": "roformer", "hidden_size": 8}')
    (folder / "vocab.txt").write_text("[PAD]\n天\n", encoding="utf-8")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    return folder


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def published(hub, revision="main"):
    return {name: d for name, d in hub.repos[REPO].files(revision).items() if name != ".gitattributes"}


def asked(hub, route):
    return [request for request in hub.requests if re.search(route, request)]


@pytest.mark.parametrize(("route", "fault"), PUSH_CASES)
def test_a_push_survives_what_passes(hub, folder, fake_time, route, fault):
    if route == "card":
        (folder / "README.md").unlink()
    before = content(folder)
    hub.faults.append(replace(FAULTS[fault], route=PUSH_ROUTES[route], times=4))
    push(folder, REPO, revision="trial", commit_message="ours")
    assert hub.faults[0].times <= (0 if "late" not in fault else 3), "the fault was not met"
    assert before.items() <= published(hub, "trial").items() and content(folder) == before
    assert list(hub.repos[REPO].messages.values()).count("ours") == 1, "published twice"
    assert fake_time.slept[:4] == [1, 2, 4, 8][: len(fake_time.slept)] and sum(fake_time.slept) <= 15


@pytest.mark.parametrize(("route", "fault"), [case for case in PUSH_CASES if case[1] != "late cut"])
def test_a_push_ends_after_five_tries(hub, folder, fake_time, route, fault):
    if route == "card":
        (folder / "README.md").unlink()
    hub.faults.append(replace(FAULTS[fault], route=PUSH_ROUTES[route], times=99))
    with refused(HubError, 5) as ended:
        push(folder, REPO, revision="trial")
    message = str(ended.value)
    assert len(asked(hub, PUSH_ROUTES[route])) == 5 and fake_time.slept == [1, 2, 4, 8]
    uncertain = route == "commit" and fault != "429"
    assert (REPO in message) == uncertain and ("nothing" in message) == (not uncertain) and hub.token not in message
    assert REPO not in hub.repos or "trial" not in hub.repos[REPO].branches or not published(hub, "trial")


@pytest.mark.parametrize(("route", "fault"), PULL_CASES)
def test_a_pull_survives_what_passes(hub, folder, fake_time, tmp_path, route, fault):
    push(folder, REPO)
    hub.faults.append(replace(FAULTS[fault], route=PULL_ROUTES[route], times=4))
    pull(REPO, tmp_path / "pulled")
    pulled = content(tmp_path / "pulled")
    del pulled[".gitattributes"]
    assert pulled == content(folder) and sum(fake_time.slept) <= 15


@pytest.mark.parametrize(("route", "fault"), PULL_CASES)
def test_a_pull_ends_after_five_tries(hub, folder, fake_time, tmp_path, route, fault):
    push(folder, REPO)
    hub.requests.clear()
    hub.faults.append(replace(FAULTS[fault], route=PULL_ROUTES[route], times=999))
    with refused(HubError, "nothing", 5):
        pull(REPO, tmp_path / "pulled")
    assert len(asked(hub, PULL_ROUTES[route])) <= 5 and sum(fake_time.slept) <= 15
    assert [path.name for path in tmp_path.iterdir() if "pulled" in path.name] == []


def test_parts_and_files_that_arrived_are_not_sent_again(hub, folder, fake_time):
    hub.faults.append(Fault("PUT /lfs/.*/2$", cut=0, times=3))
    hub.faults.append(Fault("POST /lfs/verify", status=500, times=99))
    with refused(HubError, "nothing", 500):
        push(folder, REPO)
    assert len(asked(hub, "PUT /lfs/.*/1$")) == 1 and len(asked(hub, "PUT /lfs/.*/2$")) == 4
    hub.faults.clear(), hub.requests.clear()
    push(folder, REPO)
    sent = asked(hub, "PUT /lfs/")
    small = hashlib.sha256((folder / "model-00001-of-00002.safetensors").read_bytes()).hexdigest()
    assert set(sent) <= {f"PUT /lfs/{small}"}, "the large file had arrived"
    assert content(folder) == published(hub)


@pytest.mark.parametrize("header", ["seconds", "date", "ratelimit"])
def test_the_hub_says_how_long_to_wait(hub, folder, fake_time, header):
    fault = Fault("POST .*/preupload/", status=429, times=2)
    when = format_datetime(datetime.fromtimestamp(NOON + 30, UTC), usegmt=True)
    fault.headers = {
        "seconds": {"Retry-After": "30"},
        "date": {"Retry-After": when},
        "ratelimit": {"ratelimit": '"api";r=0;t=30', "ratelimit-policy": '"fixed window";"api";q=500;w=300'},
    }[header]
    hub.faults.append(fault)
    push(folder, REPO)
    # The date has come by the second time.
    assert fake_time.slept == ([30, 0] if header == "date" else [30, 30]) and published(hub)


@pytest.mark.parametrize(("route", "status"), [("preupload", 429), ("commit", 429), ("commit", 503)])
def test_a_wait_beyond_90_seconds_is_not_begun(hub, folder, fake_time, route, status):
    hub.faults.append(Fault(PUSH_ROUTES[route], status=status, headers={"Retry-After": "91"}))
    with refused(HubError, status, "91 seconds"):
        push(folder, REPO)
    assert not fake_time.slept and not published(hub)


def test_90_seconds_in_all(hub, folder, fake_time):
    """All requests of one push share the 90 seconds."""
    wait = {"Retry-After": "40"}
    for route in ("create", "preupload"):
        hub.faults.append(Fault(PUSH_ROUTES[route], status=429, headers=wait))
    push(folder, REPO)
    assert fake_time.slept == [40, 40]
    (folder / "notes.txt").write_text("new")
    for route in ("create", "preupload", "metadata"):
        hub.faults.append(Fault(PUSH_ROUTES[route], status=429, headers=wait))
    with refused(HubError, 429, "40 seconds"):
        push(folder, REPO)
    assert fake_time.slept == [40, 40, 40, 40]


@max_examples(30)
@given(
    failures=st.lists(
        st.tuples(st.sampled_from(["create", "preupload", "batch", "metadata", "commit"]), st.integers(0, 60)),
        max_size=6,
    )
)
def test_no_failures_take_longer(hub, folder, fake_time, failures):
    """With any requested waits, a push publishes once, or fails with one line, within 90 seconds."""
    hub.repos.clear(), hub.requests.clear()
    fake_time.slept.clear()
    hub.faults[:] = [
        Fault(PUSH_ROUTES[route], status=503, headers={"Retry-After": str(wait)}) for route, wait in failures
    ]
    try:
        push(folder, REPO, commit_message="ours")
    except HubError as ended:
        assert "\n" not in str(ended)
        assert not list(hub.repos.get(REPO, hub_server.Repo()).messages.values()).count("ours")
    else:
        assert list(hub.repos[REPO].messages.values()).count("ours") == 1
        assert len(fake_time.slept) == len(failures)
    assert sum(fake_time.slept) <= 90
    assert all(len(asked(hub, route)) <= 5 + 1 for route in PUSH_ROUTES.values())


@given(st.text(max_size=12) | st.integers().map(str) | st.floats().map(str))
def test_any_retry_after_is_a_wait_or_none(text):
    wait = hub_retries._retry_after({"Retry-After": text})
    assert wait is None or (0 <= wait < math.inf)


def test_an_unanswered_commit_that_was_made_is_not_made_again(hub, folder, fake_time):
    hub.faults.append(Fault("POST .*/commit/", cut=5))
    hub.faults.append(Fault("GET /api/models/somebody/model$", status=502, times=2, skip=1))
    assert push(folder, REPO, commit_message="ours") == f"{hub.url}/{REPO}"
    assert len(asked(hub, "POST .*/commit/")) == 1
    assert list(hub.repos[REPO].messages.values()).count("ours") == 1


def test_a_commit_that_arrives_late_is_not_made_again(hub, folder, fake_time):
    """The gateway gives up (504), and the Hub makes the commit while we send it once more."""
    push(folder, REPO, commit_message="first")
    (folder / "notes.txt").write_text("new")
    repo = hub.repos[REPO]
    hub.faults.append(Fault("POST .*/commit/", status=504))
    hub.faults.append(Fault("POST .*/commit/", status=412))
    tree = repo.commits[repo.branches["main"]] | {"notes.txt": Blob(b"new")}
    looked = len(asked(hub, "GET /api/models/somebody/model$"))

    def arrive(request):
        # After the branch was looked at, and before the commit is sent again.
        if request.startswith("POST") and "/commit/" in request and hub.faults[0].times == 0:
            repo.commit("main", tree, "second")

    hub.before = arrive
    push(folder, REPO, commit_message="second")
    assert len(asked(hub, "GET /api/models/somebody/model$")) > looked
    assert list(repo.messages.values()) == ["initial commit", "first", "second"]


def test_what_somebody_else_did_meanwhile_is_not_touched(hub, folder, fake_time):
    push(folder, REPO)
    (folder / "config.json").write_text('{"model_type": "roformer", "hidden_size": 16}')
    repo = hub.repos[REPO]
    theirs = repo.commits[repo.branches["main"]] | {"config.json": Blob(b'{"model_type": "roformer"}')}
    hub.faults.append(Fault("POST .*/commit/", status=503))
    fake_time.meanwhile = lambda: repo.commit("main", theirs, "theirs")
    with refused(HubError, REPO, "response") as ended:
        push(folder, REPO)
    assert "nothing" not in str(ended.value)
    assert published(hub)["config.json"] == b'{"model_type": "roformer"}'


@pytest.mark.parametrize(
    "fault", [Fault("", cut=5), Fault("", cut=0), Fault("", status=503)], ids=["late", "cut", "503"]
)
def test_a_pull_request_is_opened_once(hub, folder, fake_time, fault):
    push(folder, REPO)
    (folder / "notes.txt").write_text("new")
    hub.faults.append(replace(fault, route="POST .*/commit/"))
    assert push(folder, REPO, create_pr=True) == f"{hub.url}/{REPO}/discussions/1"
    assert len(hub.repos[REPO].pull_requests) == 1 and hub.repos[REPO].files("refs/pr/1")["notes.txt"] == b"new"


def test_a_slow_hub_is_waited_for_and_a_silent_one_is_not(hub, folder, fake_time, monkeypatch):
    hub.faults.append(Fault("POST .*/preupload/", delay=0.3))
    push(folder, REPO)
    assert not fake_time.slept
    (folder / "notes.txt").write_text("new")
    monkeypatch.setitem(hub_retries.TIMEOUTS, "read", 0.2)
    hub.faults.append(Fault("POST .*/preupload/", delay=1.0))
    push(folder, REPO)
    assert fake_time.slept == [1] and "notes.txt" in published(hub)


def test_a_hub_that_never_answers_is_left_within_90_seconds(hub, folder, fake_time, monkeypatch):
    """Each try takes time too: here 30 s of silence, as the server is asked to wait for."""
    limits = []

    def silent(request):
        if "/preupload/" in request:
            fake_time.passed += limits[-1]

    from huggingface_hub.utils import get_session

    plain = type(get_session()).send

    def send(client, request, **options):
        limits.append(request.extensions["timeout"]["read"])
        return plain(client, request, **options)

    monkeypatch.setattr(type(get_session()), "send", send)
    hub.before = silent
    hub.faults.append(Fault(PUSH_ROUTES["preupload"], cut=0, times=99))
    with refused(HubError, "nothing"):
        push(folder, REPO)
    assert fake_time.passed <= 91


def test_xet_keeps_the_same_limits(hub, folder, fake_time, monkeypatch):
    """hf_xet sends large files by a client of its own, here to a store that is busy."""
    pytest.importorskip("hf_xet", reason="huggingface_hub brings it on the usual machines")
    store = f"{hub.storage}/cas"
    headers = {"X-Xet-Cas-Url": store, "X-Xet-Access-Token": "x", "X-Xet-Token-Expiration": "4000000000"}
    token = Answer(200, {"casUrl": store, "accessToken": "x", "exp": 4_000_000_000}, headers)
    routes = {"xet_token": ("GET", f"{MODEL}/xet-write-token/([^/]+)")}
    routes |= {f"xet_{method}": (method, "/cas/.*") for method in ("GET", "POST", "PUT")}
    for name, route in routes.items():
        monkeypatch.setitem(ROUTES, name, route)
        answer = token if name == "xet_token" else Answer(503, {"error": "busy"})
        monkeypatch.setattr(Handler, name, lambda *_, answer=answer: answer, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setitem(hub_retries.XET, "HF_XET_CLIENT_RETRY_BASE_DELAY", "10ms")
    before = dict(os.environ)
    try:
        with refused(HubError, "nothing", 503):
            push(folder, REPO)
    finally:
        abort_xet_session()  # its native threads would run beside all later tests
    assert dict(os.environ) == before and not published(hub)
    tries = Counter(asked(hub, " /cas/"))
    assert tries and max(tries.values()) == 5


def test_other_requests_of_the_process_are_as_before(hub, folder, fake_time):
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    push(folder, REPO)
    hub.faults.append(Fault("GET /api/models/", status=503))
    with pytest.raises(HfHubHTTPError):
        HfApi().model_info(REPO)
    assert not fake_time.slept


@pytest.fixture
def closed():
    """Return the address of a port of this machine at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody else can take it
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


CALLS = {
    "push": lambda folder: push(folder, REPO),
    "pull": lambda folder: pull(REPO, folder.parent / "pulled"),
    "info": lambda folder: info(REPO),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("address", [None, "http://no-such-host.invalid"])
def test_without_a_network_two_tries_are_enough(hub, closed, folder, fake_time, monkeypatch, caplog, call, address):
    monkeypatch.setattr(constants, "ENDPOINT", address or closed)
    with refused(HubError, "reached"):
        CALLS[call](folder)
    assert fake_time.slept == [1]
    (notice,) = (record.getMessage() for record in caplog.records if record.name.startswith("modeling_roformer"))
    assert_states(notice, "reached", "1 s")


def test_a_hub_that_was_reached_is_tried_five_times(hub, folder, fake_time, monkeypatch):
    """It answers the first request, and then nobody listens any more."""
    from huggingface_hub.utils import get_session

    plain, tries = type(get_session()).send, []

    def send(client, request, **options):
        if "/preupload/" in str(request.url):
            tries.append(request)
            raise NO_CONNECTION[0]("Connection refused", request=request)
        return plain(client, request, **options)

    monkeypatch.setattr(type(get_session()), "send", send)
    with refused(HubError, "nothing", 5):
        push(folder, REPO)
    assert len(tries) == 5 and fake_time.slept == [1, 2, 4, 8]


@pytest.mark.parametrize("arguments", [["push", "my-model", REPO], ["pull", REPO, "pulled"], ["info", REPO]])
def test_the_installed_command_says_that_it_tries_again(folder, closed, tmp_path, arguments):
    environment = {"HF_ENDPOINT": closed, "HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": "hf_x", "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [Path(sys.executable).with_name("roformer"), *arguments],
        capture_output=True, text=True, cwd=tmp_path, env=os.environ | environment,
    )  # fmt: skip
    notice, error = done.stderr.splitlines()
    assert done.returncode == 1 and done.stdout == ""
    assert_states(notice, "1 s")
    assert error.startswith("roformer: ")
    assert_states(error, "reached")
