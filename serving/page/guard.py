"""What stands between the network and the page: which paths there are, how much is taken in, what a browser may load."""

import json

# What Gradio's page and its client ask for. Nothing that reads or writes files of this machine is among it.
_OPEN = (
    "/assets/", "/static/", "/svelte/", "/gradio_api/queue/", "/gradio_api/run/", "/gradio_api/call/", "/gradio_api/heartbeat/",
)  # fmt: skip
_OPEN_FILES = {
    "/", "/config", "/theme.css", "/favicon.ico", "/robots.txt", "/manifest.json", "/gradio_api/info",
    "/gradio_api/startup-events", "/gradio_api/cancel", "/gradio_api/reset", "/gradio_api/app_id",
}  # fmt: skip
# A browser that shows the page asks no other machine for anything: no fonts, no scripts, no telemetry.
_POLICY = (
    b"default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    b"style-src 'self' 'unsafe-inline'; base-uri 'self'; form-action 'self'"
)


class Guard:
    """ASGI middleware.

    A path that the page does not need is not found, and a body of more than `longest_body` bytes is thrown away as it
    comes in and answered by `sentence`, which the page shows; it is never parsed.
    """

    def __init__(self, app, longest_body: int, sentence: str):
        self.app = app
        self.longest_body = longest_body
        self.sentence = sentence

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        path = scope["path"]
        if ".." in path or not (path in _OPEN_FILES or path.startswith(_OPEN)):
            await _refuse(send, 404, "there is nothing here")
            return
        messages, size = [], 0
        while not messages or messages[-1].get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
            if size > self.longest_body:
                message = {**message, "body": b""}
                messages.clear()
            messages.append(message)
        if size > self.longest_body:
            await _refuse(send, 413, self.sentence)
            return
        waiting = iter(messages)

        async def replay():
            return next(waiting, None) or await receive()

        async def send_with_policy(message):
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"content-security-policy", _POLICY)]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, replay, send_with_policy)


async def _refuse(send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
