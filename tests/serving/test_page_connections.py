"""The page's server over sockets: unfinished requests, too many requests, and requests from other sites."""

import json
import time

import pytest
from helpers import page_models

import modeling_roformer as package

pytestmark = pytest.mark.page
_WHY = "the extra page is not installed: make test-page"
httpx, _, gradio_client = (pytest.importorskip(name, reason=_WHY) for name in ("httpx", "uvicorn", "gradio_client"))
from helpers.page_server import PageServer  # noqa: E402, needs uvicorn

from modeling_roformer.serving.page import guard, server  # noqa: E402
from modeling_roformer.serving.page.guard import Guard, Origins  # noqa: E402

SECONDS = 0.5  # time limit of a request
BODY = 100_000


async def echo(scope, receive, send):
    """Respond with the number of bytes and the headers of the request."""
    message = await receive()
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    answer = json.dumps({"bytes": len(message["body"]), "headers": headers, "scheme": scope["scheme"]}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer})


def guarded(proxy: bool = False) -> Guard:
    return Guard(echo, longest_body=BODY, sentence="it is too long", origins=Origins("127.0.0.1", proxy))


@pytest.fixture
def serve():
    """Return a function that serves a guarded application without a model."""
    running = []

    def serve(proxy=False, **options):
        running.append(PageServer(guarded(proxy), proxy=proxy, **options))
        return running[-1]

    yield serve
    for one in running:
        one.stop()


def head(length: int, port: int = 0) -> bytes:
    return b"POST /gradio_api/queue/join HTTP/1.1\r\nHost: 127.0.0.1:%d\r\ncontent-length: %d\r\n\r\n" % (port, length)


def everything(connection, end: bytes | None = None) -> bytes:
    """Return the bytes received until the connection closes, or until they end with `end`."""
    found = b""
    while (end is None or not found.endswith(end)) and (data := connection.recv(65_536)):
        found += data
    return found


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b"408"),
        (b"POST /gradio_api/queue/join HT", b"408"),
        (head(1000)[:-2], b"408"),
        (head(1000), b"408"),
        (head(1000) + b"x" * 999, b"408"),
        (head(BODY) + b"x" * (BODY - 1), b"408"),
        (head(10 * BODY) + b"x" * 2 * BODY, b"408"),  # more than is accepted
        (head(1000).replace(b"content-length: 1000", b"transfer-encoding: chunked") + b"5\r\nhello\r\n", b"408"),
        (head(3) + b"abc" + head(1000) + b"x", b"200"),  # the second one on a connection
    ],
)
def test_an_unfinished_request_is_ended(serve, sent, status):
    with serve(request_seconds=SECONDS).connect() as connection:
        connection.sendall(sent)
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 " + status)
    if status == b"200":
        assert b"HTTP/1.1 408" in answer


def test_a_slow_request_is_ended(serve):
    with serve(request_seconds=SECONDS).connect() as connection:
        connection.sendall(head(1000))
        with pytest.raises(OSError):
            for _ in range(200):
                connection.sendall(b"x")
                time.sleep(0.05)


def test_complete_requests_on_one_connection_are_answered(serve):
    page = serve(request_seconds=SECONDS)
    with page.connect() as connection:
        for _ in range(2):
            connection.sendall(head(3, page.port) + b"abc")
            assert b'{"bytes": 3' in everything(connection, b"}")
            time.sleep(0.2)
    with httpx.Client(base_url=page.address) as client:
        assert client.post("/gradio_api/queue/join", content=b"x" * BODY).json()["bytes"] == BODY
        assert client.post("/gradio_api/queue/join", content=iter([b"x"] * 1000)).json()["bytes"] == 1000


def test_long_responses_are_not_ended(serve):
    """The queue sends such responses while a request is computed."""

    async def slow(scope, receive, send):
        import asyncio

        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(SECONDS / 2)
        await send({"type": "http.response.body", "body": b"end"})

    page = PageServer(
        Guard(slow, longest_body=BODY, sentence="", origins=Origins("127.0.0.1")), request_seconds=SECONDS
    )
    try:
        assert httpx.get(f"{page.address}/gradio_api/queue/data").text == "xxxxend"
    finally:
        page.stop()


def test_too_many_connections_are_refused(serve):
    page = serve(connections=4, request_seconds=4 * SECONDS)
    waiting = [page.connect() for _ in range(3)]
    for connection in waiting:
        connection.sendall(head(1000))
    while len(page.server.server_state.tasks) < 3:
        time.sleep(0.01)
    for _ in range(2):
        with page.connect() as one_more:
            one_more.sendall(head(0, page.port))
            assert everything(one_more).startswith(b"HTTP/1.1 503")
    for connection in waiting:
        assert everything(connection).startswith(b"HTTP/1.1 408")
        connection.close()
    assert httpx.get(f"{page.address}/config").status_code == 200


def test_unfinished_bodies_are_held_up_to_a_bound(serve, monkeypatch):
    monkeypatch.setattr(guard, "MOST_HELD", 3 * BODY)
    page = serve(request_seconds=4 * SECONDS)
    waiting = [page.connect() for _ in range(6)]
    for connection in waiting:
        connection.sendall(head(BODY, page.port) + b"x" * (BODY - 1))
        time.sleep(0.02)
    for connection in waiting:
        connection.sendall(b"x")
    answers = [connection.recv(65_536)[9:12] for connection in waiting]
    assert answers == [b"200"] * 3 + [b"503"] * 3
    for connection in waiting:
        connection.close()
    with httpx.Client(base_url=page.address) as client:
        assert client.post("/gradio_api/queue/join", content=b"x" * BODY).status_code == 200


def test_forwarded_headers_are_trusted_only_with_a_proxy(serve):
    forwarded = {"X-Forwarded-Host": "page.example", "X-Forwarded-Proto": "https", "Forwarded": "host=page.example"}
    for proxy in (False, True):
        found = httpx.get(f"{serve(proxy).address}/config", headers=forwarded).json()
        assert [name in found["headers"] for name in ("x-forwarded-host", "x-forwarded-proto", "forwarded")] == [
            proxy
        ] * 3
        assert found["scheme"] == ("https" if proxy else "http")


def test_there_are_no_websockets(serve):
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "eA==",
    }
    page = serve()
    for origin in ({}, {"Origin": "http://evil.example"}):
        assert httpx.get(f"{page.address}/gradio_api/queue/join", headers=upgrade | origin).status_code != 101


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return page_models.save(tmp_path_factory.mktemp("model") / "small", package.RoFormerForMaskedLM)


@pytest.fixture(scope="module")
def page(folder):
    """Serve the page of a small model."""
    running = PageServer(server.application(folder))
    yield running
    running.stop()


def test_programs_of_this_machine_ask_without_an_origin(page):
    client = gradio_client.Client(page.address, verbose=False)
    assert 'class="answer"' in client.predict("押金[MASK]。", api_name="/fill")
    for name in ("127.0.0.1", "localhost"):
        address = f"http://{name}:{page.port}"
        asked = httpx.post(f"{address}/gradio_api/call/segments", json={"data": ["押金"]}, headers={"Origin": address})
        answer = httpx.get(f"{address}/gradio_api/call/segments/{asked.json()['event_id']}")
        assert "event: complete" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
def test_another_site_gets_nothing_computed(page, headers):
    asked = {"data": ["[MASK]"], "fn_index": 0, "session_hash": "x"}
    for path in ("call/fill", "queue/join", "run/fill", "cancel", "reset"):
        for content_type in ("application/json", "text/plain"):
            answer = httpx.post(
                f"{page.address}/gradio_api/{path}",
                content=json.dumps(asked),
                headers=headers | {"content-type": content_type},
            )
            assert answer.status_code in (400, 403), path
    for path in ("", "config", "gradio_api/info", "gradio_api/queue/data?session_hash=x", "gradio_api/heartbeat/x"):
        assert httpx.get(f"{page.address}/{path}", headers=headers).status_code in (400, 403), path
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    answer = httpx.options(f"{page.address}/gradio_api/call/fill", headers=headers | preflight)
    assert answer.status_code in (400, 403) and "access-control-allow-origin" not in answer.headers


def test_behind_a_web_server(folder):
    """The proxy forwards the visitor's Host, or puts it into X-Forwarded-Host."""
    page = PageServer(server.application(folder, proxy=True), proxy=True)
    visitor = {"Origin": "https://page.example", "X-Forwarded-Proto": "https"}
    try:
        with httpx.Client(base_url=page.address) as client:
            for host in ({"Host": "page.example"}, {"X-Forwarded-Host": "page.example"}):
                asked = client.post("/gradio_api/call/segments", json={"data": ["押金"]}, headers=visitor | host)
                assert asked.status_code == 200
                assert client.get("/config", headers=visitor | host).json()["root"] == "https://page.example"
            foreign = visitor | {"X-Forwarded-Host": "page.example", "Origin": "https://evil.example"}
            assert client.post("/gradio_api/call/segments", json={"data": ["押金"]}, headers=foreign).status_code == 403
    finally:
        page.stop()
