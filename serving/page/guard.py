"""Filter between the network and the page: hosts, origins, paths, sizes, and the browser's content security policy.

A page of another site can make a visitor's browser send requests to this one, even if only this machine reaches it; the
header `Origin` then names that site. Or it can point its own name to this machine's address (DNS rebinding); then
`Host` has that name.
"""

import ipaddress
import json
import re
import socket
from collections.abc import Iterable

# Paths that Gradio's page and client request. None reads or writes files of this machine.
_OPEN = (
    "/assets/", "/static/", "/svelte/", "/gradio_api/queue/", "/gradio_api/run/", "/gradio_api/call/",
    "/gradio_api/heartbeat/",
)  # fmt: skip
_OPEN_FILES = {
    "/", "/config", "/theme.css", "/favicon.ico", "/robots.txt", "/manifest.json", "/gradio_api/info",
    "/gradio_api/startup-events", "/gradio_api/cancel", "/gradio_api/reset", "/gradio_api/app_id",
}  # fmt: skip
MOST_HELD = 32 << 20  # bytes of incomplete requests
# The browser contacts no other machine: no fonts, scripts or telemetry from elsewhere.
_POLICY = (
    b"default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    b"style-src 'self' 'unsafe-inline'; base-uri 'self'; form-action 'self'"
)
_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[\w.-]+))(?::(?P<port>\d{1,5}))?", re.ASCII)
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_OTHER_HOST = "this page does not serve that host name: use its address, or start it with --proxy to allow every name"

Headers = Iterable[tuple[bytes, bytes]]


class Origins:
    """Host names and origins that the page accepts.

    Args:
        host: address that the page listens on. On 127.0.0.1 the page accepts this machine's local names only; elsewhere
            any numeric address, `host`, and this machine's name in its network.
        proxy: whether a reverse proxy stands before the page. Every host name is accepted then, and `X-Forwarded-Host`
            and the like are trusted. Requests from other sites are still refused.
    """

    def __init__(self, host: str, proxy: bool = False):
        self.proxy = proxy
        self._is_local = _is_loopback(host.lower())
        self._names = {host.lower()}
        if not self._is_local:
            name = socket.gethostname().lower()
            self._names |= {name, f"{name.partition('.')[0]}.local", socket.getfqdn(name).lower()}

    def refusal(self, headers: Headers) -> tuple[int, str] | None:
        """Return the status and message that refuse a request; None if it is accepted."""
        hosts = [_text(value) for name, value in headers if name == b"host"]
        origins = [_text(value) for name, value in headers if name == b"origin"]
        host = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if host is None or not self._accepts(host["ipv6"] or host["name"].removesuffix(".")):
            return 400, _OTHER_HOST
        if self.proxy:
            # Each proxy appends its own host after a comma; the first is the one that the visitor requested.
            hosts += [_text(value).partition(",")[0].strip() for name, value in headers if name == b"x-forwarded-host"]
            if not all(map(_HOST.fullmatch, hosts)):
                return 400, "X-Forwarded-Host is not a host name"
        if any(not _is_same_site(origin, hosts) for origin in origins):
            return 403, "this page refuses requests from other sites; a reverse proxy has to forward Host"
        return None

    def trusted(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return the headers, without the proxy's ones if there is no proxy."""
        return [
            (name, value)
            for name, value in headers
            if self.proxy or not (name == b"forwarded" or name.startswith(b"x-forwarded-"))
        ]

    def _accepts(self, name: str) -> bool:
        if self.proxy or name in self._names or _is_loopback(name):
            return True
        return not self._is_local and _address(name) is not None  # DNS rebinding needs a name, not an address


class Guard:
    """ASGI middleware that refuses requests.

    It refuses requests that `origins` refuses, paths that the page does not need, and bodies of more than
    `longest_body` bytes. It discards a long body unparsed and responds with `sentence`, which the page shows.
    Incomplete bodies hold at most `MOST_HELD` bytes together.
    """

    def __init__(self, app, longest_body: int, sentence: str, origins: Origins):
        self.app = app
        self.longest_body = longest_body
        self.sentence = sentence
        self.origins = origins
        self.held = 0

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        if refusal := self.origins.refusal(scope["headers"]):
            await _refuse(send, *refusal)
            return
        scope = {**scope, "headers": self.origins.trusted(scope["headers"])}
        path = scope["path"]
        if ".." in path or not (path in _OPEN_FILES or path.startswith(_OPEN)):
            await _refuse(send, 404, "not found")
            return
        body = await self._body(receive)
        if body is None:
            return
        if isinstance(body, int):
            await _refuse(send, body, self.sentence if body == 413 else "the page receives too much at once: try again")
            return
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay():
            return next(messages, None) or await receive()

        async def send_with_policy(message):
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"content-security-policy", _POLICY)]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, replay, send_with_policy)

    async def _body(self, receive) -> bytes | int | None:
        """Return the body of a request or the status that refuses it; None if the visitor has disconnected."""
        body, size, status, more = bytearray(), 0, None, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                if size > self.longest_body:
                    status = 413
                elif self.held + len(part) > max(MOST_HELD, self.longest_body):
                    status = 503
                if status is None:
                    body += part
                    self.held += len(part)
                else:
                    self.held -= len(body)
                    body.clear()
            return bytes(body) if status is None else status
        finally:
            self.held -= len(body)


async def _refuse(send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip().lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _is_same_site(origin: str, hosts: list[str]) -> bool:
    """Return whether an origin, `http://name:port`, belongs to one of the hosts, `name:port`."""
    scheme, _, host = origin.partition("://")
    port = f":{_DEFAULT_PORTS.get(scheme)}"
    return scheme in _DEFAULT_PORTS and host.removesuffix(port) in [name.removesuffix(port) for name in hosts]
