"""A small Hub in memory: the part of the Hub's HTTP API that huggingface_hub and transformers use for models.

Repositories hold commits (each a complete tree, so that old revisions stay readable) and branches; large files go
through the LFS protocol, as they do where hf_xet is switched off, and come back through a redirect, as from the Hub's
CDN. Append a `Fault` to `hub.faults` to make a route fail; `hub.requests` lists what was asked.

`hub` is the fixture; `hub.environment` is for a subprocess.
"""

import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml
from helpers.command_line import ROFORMER

LFS_SUFFIXES = (".safetensors", ".bin", ".h5", ".onnx", ".zip", ".npz")


@dataclass(frozen=True)
class Blob:
    data: bytes
    lfs: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def git_oid(self) -> str:
        content = self.data
        if self.lfs:
            content = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\n".encode()
            content += f"size {len(self.data)}\n".encode()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def entry(self, path: str) -> dict:
        entry = {"type": "file", "path": path, "size": len(self.data), "oid": self.git_oid}
        if self.lfs:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.data), "pointerSize": 134}
        return entry


@dataclass
class Repo:
    private: bool = False
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pull_requests: list[dict] = field(default_factory=list)

    def commit(self, branch: str, tree: dict[str, Blob], message: str) -> str:
        names = [f"{path} {blob.git_oid}" for path, blob in sorted(tree.items())]
        parents = [self.branches.get(branch, ""), str(len(self.commits)), message]
        revision = hashlib.sha1("\n".join(parents + names).encode()).hexdigest()
        self.commits[revision], self.messages[revision] = tree, message
        self.branches[branch] = revision
        return revision

    def resolve(self, revision: str) -> str:
        for names in (self.branches, self.tags):
            if revision in names:
                return names[revision]
        if revision in self.commits:
            return revision
        raise Answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})

    def files(self, revision: str = "main") -> dict[str, bytes]:
        return {path: blob.data for path, blob in self.commits[self.resolve(revision)].items()}


@dataclass
class Fault:
    """A change of the responses to the next `times` requests whose "METHOD /path" the pattern is found in."""

    route: str
    status: int | None = None  # answer with this status
    cut: int | None = None  # send this many bytes of the body, then close the connection
    truncate: int | None = None  # send this many bytes of the body as if they were all
    corrupt: bool = False  # flip the bits of the body's last byte
    headers: dict[str, str | None] = field(default_factory=dict)  # replace these headers; None leaves one out
    delay: float = 0.0  # seconds before the answer
    times: int = 1


class Answer(Exception):
    """The reply to a request; raised to leave a route at once."""

    def __init__(self, status: int, body: object = b"", headers: dict[str, str] | None = None):
        self.status, self.headers = status, dict(headers or {})
        if not isinstance(body, bytes):
            body, self.headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        self.body = body


class Hub:
    """The state of the server. `tokens` maps a token to its user's name; `read_only` lists tokens that may not
    write."""

    def __init__(self):
        self.token = "hf_test_token"
        self.tokens = {self.token: "somebody"}
        self.read_only: set[str] = set()
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}  # sha256 -> content of the LFS store
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.before: Callable[[str], None] = lambda request: None  # is called with each request
        self.lock = threading.RLock()
        handler = type("Handler", (Handler,), {"hub": self})
        self.server = QuietServer(("127.0.0.1", 0), handler)
        port = self.server.server_address[1]
        # Large files come from another host: huggingface_hub follows no redirect to it when it asks for their headers.
        self.url, self.storage = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "Hub":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def fault_for(self, request: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and re.search(fault.route, request):
                    fault.times -= 1
                    return fault
        return None


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_) -> None:
        pass  # a client that went away, or a connection that a fault cut


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_request(self) -> None:
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        request = f"{self.command} {unquote(url.path)}"
        self.hub.requests.append(request)
        self.hub.before(request)
        fault = self.hub.fault_for(request)
        if fault and fault.delay:
            time.sleep(fault.delay)
        if fault and fault.cut == 0:
            self.close_connection = True
            return self.connection.close()
        self.body = self.read_body()
        try:
            if fault and fault.status:
                raise Answer(fault.status, {"error": f"injected {fault.status}"}, fault.headers)
            answer = self.route(self.command, url.path)
        except Answer as raised:
            answer = raised
        return self.send(answer, fault)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_request

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def send(self, answer: Answer, fault: Fault | None) -> None:
        body, headers = answer.body, {"Content-Length": str(len(answer.body))} | answer.headers
        if fault:
            if fault.corrupt and body:
                body = body[:-1] + bytes([body[-1] ^ 0xFF])
            if fault.truncate is not None:
                body = body[: fault.truncate]
                headers["Content-Length"] = str(len(body))
            headers |= fault.headers
        self.send_response(answer.status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            if fault and fault.cut is not None:
                self.wfile.write(body[: fault.cut])
                self.wfile.flush()
                self.close_connection = True
                self.connection.close()
            else:
                self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass

    # Who asks, and for what.

    def json(self) -> dict:
        return json.loads(self.body or b"{}")

    def user(self) -> str | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if token and token not in self.hub.tokens:
            message = "Invalid credentials in Authorization header"
            raise Answer(401, {"error": message}, {"X-Error-Message": message})
        return self.hub.tokens.get(token)

    def must_write(self, namespace: str) -> None:
        user = self.user()
        if user is None:
            raise Answer(401, {"error": "Invalid username or password."})
        if user != namespace or self.headers["Authorization"].removeprefix("Bearer ") in self.hub.read_only:
            message = f"You don't have the rights to write to the namespace {namespace}"
            raise Answer(403, {"error": message}, {"X-Error-Message": message})

    def repo(self, repo_id: str, write: bool = False) -> Repo:
        repo = self.hub.repos.get(repo_id)
        if repo is None or (repo.private and self.user() != repo_id.split("/")[0]):
            raise Answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        if write:
            self.must_write(repo_id.split("/")[0])
        return repo

    def route(self, method: str, path: str) -> Answer:
        method = "GET" if method == "HEAD" else method
        for name, (route_method, pattern) in ROUTES.items():
            match = re.fullmatch(pattern, path)
            if match and method == route_method:
                with self.hub.lock:
                    return getattr(self, name)(*(unquote(group or "") for group in match.groups()))
        return Answer(404, {"error": f"this Hub has no route for {method} {path}"})

    # The routes.

    def validate_yaml(self) -> Answer:
        return Answer(200, {"errors": [], "warnings": []})

    def create_repo(self) -> Answer:
        wanted = self.json()
        namespace = wanted.get("organization") or self.user()
        self.must_write(namespace)
        repo_id = f"{namespace}/{wanted['name']}"
        known = repo_id in self.hub.repos
        if not known:
            repo = self.hub.repos[repo_id] = Repo(private=wanted.get("visibility") == "private")
            repo.commit("main", {".gitattributes": Blob(b"*.safetensors filter=lfs\n")}, "initial commit")
        message = {"error": "You already created this model repo"} if known else {}
        answer = message | {"url": f"{self.hub.url}/{repo_id}", "name": repo_id, "id": repo_id}
        return Answer(409 if known else 200, answer)

    def create_branch(self, repo_id: str, branch: str) -> Answer:
        repo = self.repo(repo_id, write=True)
        if branch in repo.branches:
            return Answer(409, {"error": "Reference already exists"})
        repo.branches[branch] = repo.resolve(self.json().get("startingPoint", "main"))
        return Answer(200, {})

    def preupload(self, repo_id: str, revision: str) -> Answer:
        repo = self.repo(repo_id, write="create_pr" not in self.query)
        tree = repo.commits[repo.resolve(revision)]
        files = []
        for file in self.json()["files"]:
            path, sample = file["path"], base64.b64decode(file["sample"])
            lfs = path.endswith(LFS_SUFFIXES) or b"\0" in sample or file["size"] > 10_000_000
            known = tree.get(path)
            oid = None if known is None else known.sha256 if known.lfs else known.git_oid
            mode = "lfs" if lfs else "regular"
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return Answer(200, {"files": files})

    def lfs_batch(self, repo_id: str) -> Answer:
        self.repo(repo_id)
        if self.user() is None:  # reading is enough for a pull request
            return Answer(401, {"error": "Invalid username or password."})
        objects = []
        for wanted in self.json()["objects"]:
            oid, size = wanted["oid"], wanted["size"]
            actions = {
                "upload": {"href": f"{self.hub.url}/lfs/{oid}"},
                "verify": {"href": f"{self.hub.url}/lfs/verify"},
            }
            objects.append({"oid": oid, "size": size} | ({} if oid in self.hub.objects else {"actions": actions}))
        return Answer(200, {"transfer": "basic", "objects": objects})

    def lfs_upload(self, oid: str) -> Answer:
        if hashlib.sha256(self.body).hexdigest() != oid:
            return Answer(400, {"error": "content does not match its sha256"})
        self.hub.objects[oid] = self.body
        return Answer(200)

    def lfs_verify(self) -> Answer:
        wanted = self.json()
        good = len(self.hub.objects.get(wanted["oid"], b"")) == wanted["size"]
        return Answer(200 if good else 404, {} if good else {"error": "no such object"})

    def discussions(self, repo_id: str) -> Answer:
        found = self.repo(repo_id).pull_requests
        return Answer(200, {"discussions": found, "count": len(found), "start": 0})

    def commit(self, repo_id: str, branch: str) -> Answer:
        proposed = "create_pr" in self.query
        repo = self.repo(repo_id, write=not proposed)
        head = repo.resolve(branch)
        tree = dict(repo.commits[head])
        summary = ""
        for line in self.body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            match operation["key"]:
                case "header":
                    summary = value["summary"]
                    if value.get("parentCommit") not in (None, head):
                        return Answer(412, {"error": "A commit has happened since. Please refresh and try again."})
                case "file":
                    tree[value["path"]] = Blob(base64.b64decode(value["content"]))
                case "lfsFile":
                    data = self.hub.objects.get(value["oid"])
                    if data is None or len(data) != value["size"]:
                        return Answer(400, {"error": f"LFS object {value['oid']} was not uploaded"})
                    tree[value["path"]] = Blob(data, lfs=True)
                case "deletedFile":
                    if tree.pop(value["path"], None) is None:
                        return Answer(400, {"error": f"{value['path']} does not exist"})
                case "deletedFolder":
                    tree = {path: blob for path, blob in tree.items() if not path.startswith(value["path"])}
        answer = {"success": True, "hookOutput": ""}
        if proposed:
            number = len(repo.pull_requests) + 1
            branch = f"refs/pr/{number}"
            repo.branches[branch] = head
            request = {"num": number, "title": summary, "status": "open", "isPullRequest": True}
            author = {"name": self.user(), "type": "user"}
            request |= {
                "author": author,
                "createdAt": "2026-01-01T00:00:00.000Z",
                "repo": {"name": repo_id, "type": "model"},
            }
            repo.pull_requests.append(request)
            answer["pullRequestUrl"] = f"{self.hub.url}/{repo_id}/discussions/{number}"
        revision = repo.commit(branch, tree, summary)
        url = f"{self.hub.url}/{repo_id}/commit/{revision}"
        return Answer(200, answer | {"commitOid": revision, "commitUrl": url})

    def info(self, repo_id: str, revision: str) -> Answer:
        repo = self.repo(repo_id)
        sha = repo.resolve(revision or "main")
        tree = repo.commits[sha]
        names = {"id": repo_id, "modelId": repo_id, "author": repo_id.split("/")[0], "private": repo.private}
        card = tree.get("README.md", Blob(b"")).data.decode()
        match = re.match(r"---\n(.*?)\n---", card, re.DOTALL)
        data = yaml.safe_load(match[1]) if match else {}
        shown = {key: data[key] for key in ("pipeline_tag", "library_name", "mask_token") if key in data}
        siblings = [{"rfilename": path} for path in sorted(tree)]
        more = {"sha": sha, "siblings": siblings, "cardData": data, "tags": data.get("tags", []), "gated": False}
        return Answer(200, names | shown | more)

    def tree(self, repo_id: str, revision: str, folder: str) -> Answer:
        repo = self.repo(repo_id)
        tree = repo.commits[repo.resolve(revision)]
        folder = f"{folder.strip('/')}/" if folder.strip("/") else ""
        below = {path: blob for path, blob in sorted(tree.items()) if path.startswith(folder)}
        if folder and not below:
            return Answer(404, {"error": f"{folder} does not exist"}, {"X-Error-Code": "EntryNotFound"})
        recursive = self.query.get("recursive", ["false"])[0].lower() == "true"
        shown = [blob.entry(path) for path, blob in below.items() if recursive or "/" not in path[len(folder) :]]
        folders = {folder + path[len(folder) :].split("/")[0] for path in below if "/" in path[len(folder) :]}
        return Answer(200, shown + [{"type": "directory", "path": path, "oid": "0" * 40} for path in sorted(folders)])

    def resolve_file(self, repo_id: str, revision: str, path: str) -> Answer:
        repo = self.repo(repo_id)
        sha = repo.resolve(revision)
        headers = {"X-Repo-Commit": sha}
        blob = repo.commits[sha].get(path)
        if blob is None:
            return Answer(404, {"error": "Entry not found"}, headers | {"X-Error-Code": "EntryNotFound"})
        if blob.lfs:
            linked = {"X-Linked-Size": str(len(blob.data)), "X-Linked-ETag": f'"{blob.sha256}"'}
            return Answer(302, headers=headers | linked | {"Location": f"{self.hub.storage}/cdn/{blob.sha256}"})
        return self.content(blob.data, headers | {"ETag": f'"{blob.git_oid}"'})

    def cdn(self, oid: str) -> Answer:
        if oid not in self.hub.objects:
            return Answer(404)
        return self.content(self.hub.objects[oid], {"ETag": f'"{oid}"'})

    def content(self, data: bytes, headers: dict[str, str]) -> Answer:
        """The whole of a file, or the range that was asked for."""
        headers |= {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match:
            return Answer(200, data, headers)
        first, last = int(match[1]), min(int(match[2] or len(data) - 1), len(data) - 1)
        if first > last:
            return Answer(416, headers={"Content-Range": f"bytes */{len(data)}"})
        return Answer(206, data[first : last + 1], headers | {"Content-Range": f"bytes {first}-{last}/{len(data)}"})


REPO = r"([\w.%-]+/[\w.%-]+)"
MODEL = f"/api/models/{REPO}"
ROUTES = {
    "validate_yaml": ("POST", "/api/validate-yaml"),
    "create_repo": ("POST", "/api/repos/create"),
    "create_branch": ("POST", f"{MODEL}/branch/([^/]+)"),
    "discussions": ("GET", f"{MODEL}/discussions"),
    "preupload": ("POST", f"{MODEL}/preupload/([^/]+)"),
    "commit": ("POST", f"{MODEL}/commit/([^/]+)"),
    "tree": ("GET", f"{MODEL}/tree/([^/]+)(/.*)?"),
    "info": ("GET", f"{MODEL}(?:/revision/([^/]+))?"),
    "lfs_batch": ("POST", rf"/{REPO}\.git/info/lfs/objects/batch"),
    "lfs_verify": ("POST", "/lfs/verify"),
    "lfs_upload": ("PUT", "/lfs/([0-9a-f]{64})"),
    "cdn": ("GET", "/cdn/([0-9a-f]{64})"),
    "resolve_file": ("GET", f"/{REPO}/resolve/([^/]+)/(.+)"),
}


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def published(hub: Hub, revision: str = "main") -> dict[str, bytes]:
    """Return the files of somebody/model without the one that the Hub makes itself."""
    files = hub.repos["somebody/model"].files(revision) if "somebody/model" in hub.repos else {}
    return {name: data for name, data in files.items() if name != ".gitattributes"}


def interrupt(hub: Hub, pattern: str, *arguments: object) -> None:
    """Run a command until it sends a request of this pattern, send it Ctrl-C, and assert that it ends as it should."""
    reached = threading.Event()
    hub.before = lambda request: reached.set() if re.search(pattern, request) else None
    hub.faults.append(Fault(pattern, delay=4))
    command = [ROFORMER, *map(str, arguments)]
    running = subprocess.Popen(command, env=hub.environment, stdout=-1, stderr=-1, text=True, cwd="/")
    try:
        assert reached.wait(timeout=300)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=900)
    finally:
        running.kill()
        hub.before = lambda request: None
    assert running.returncode == 130 and not out and "Traceback" not in err and hub.token not in err
    assert "interrupted" in err


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub that the client in this process talks to, logged in, with a cache of its own.

    The client reads its settings once, on import, so both they and the environment are set.
    """
    import huggingface_hub.constants as constants
    from huggingface_hub import hf_api
    from transformers.utils import hub as transformers_hub

    home = tmp_path / "hf_home"
    with Hub() as hub:
        hub.environment = {
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": hub.token,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_MODULES_CACHE": str(home / "modules"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        for name, value in hub.environment.items():
            monkeypatch.setenv(name, value)
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", hub.environment["HF_HUB_CACHE"])
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", hub.environment["HF_TOKEN_PATH"])
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setattr(hf_api.api, "endpoint", hub.url)
        monkeypatch.setattr(transformers_hub, "_hf_api", None)
        hub.environment = {**os.environ, **hub.environment}
        yield hub
