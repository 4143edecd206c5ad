"""What stands between the network and the page: who may ask, which paths there are, how much is taken in, what a browser may
load."""

import json

from .origins import Origins

# What Gradio's page and its client ask for. Nothing that reads or writes files of this machine is among it.
_OPEN = (
    "/assets/", "/static/", "/svelte/", "/gradio_api/queue/", "/gradio_api/run/", "/gradio_api/call/", "/gradio_api/heartbeat/",
)  # fmt: skip
_OPEN_FILES = {
    "/", "/config", "/theme.css", "/favicon.ico", "/robots.txt", "/manifest.json", "/gradio_api/info",
    "/gradio_api/startup-events", "/gradio_api/cancel", "/gradio_api/reset", "/gradio_api/app_id",
}  # fmt: skip
MOST_HELD = 32 << 20  # bytes of requests that have not come whole
# A browser that shows the page asks no other machine for anything: no fonts, no scripts, no telemetry.
_POLICY = (
    b"default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    b"style-src 'self' 'unsafe-inline'; base-uri 'self'; form-action 'self'"
)


class Guard:
    """ASGI middleware.

    A request that `origins` refuses goes no further, a path that the page does not need is not found, and a body of more
    than `longest_body` bytes is thrown away as it comes in and answered by `sentence`, which the page shows; it is never
    parsed. Of the bodies that have not come whole, no more than `MOST_HELD` bytes are held together.
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
        scope = {**scope, "headers": self.origins.believed(scope["headers"])}
        path = scope["path"]
        if ".." in path or not (path in _OPEN_FILES or path.startswith(_OPEN)):
            await _refuse(send, 404, "there is nothing here")
            return
        found = await self._body(receive)
        if found is None:
            return
        if isinstance(found, int):
            sentence = self.sentence if found == 413 else "too much is being sent to this page at once: try again"
            await _refuse(send, found, sentence)
            return
        messages = iter([{"type": "http.request", "body": found, "more_body": False}])

        async def replay():
            return next(messages, None) or await receive()

        async def send_with_policy(message):
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"content-security-policy", _POLICY)]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, replay, send_with_policy)

    async def _body(self, receive) -> bytes | int | None:
        """The body of a request, or the status with which it is refused; None where the visitor has gone."""
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
