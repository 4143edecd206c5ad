"""Connections on which requests do not end: they are closed after a while, and there are not too many of them.

uvicorn has a limit for what stays open between requests, and none for a request of which no more comes.
"""

import asyncio
import json

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 30.0
VISITORS = 256  # connections beside those of the questions that wait, of which each has up to four
_BODY = json.dumps({"detail": "the request did not end in time"}).encode()
_ANSWER = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
    % (len(_BODY), _BODY)
)


class TimedProtocol(H11Protocol):
    """A connection that is closed where a request, its headers and its body, has not come whole in `request_seconds`."""

    request_seconds = REQUEST_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._watch()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Run the clock from when a request may begin until it has ended."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.request_seconds, self._end)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        # Where an answer has begun, another one would be read as part of it.
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_ANSWER)
        self.transport.close()


def server_of(
    app, *, waiting: int, proxy: bool = False, request_seconds: float = REQUEST_SECONDS, connections: int | None = None
) -> uvicorn.Server:
    """A server for the page's application.

    Args:
        waiting: questions that may wait in the queue.
        proxy: believe what a web server on this machine says of visitors.
        request_seconds: in which a request must have come whole.
        connections: at most, beyond which requests are answered with 503; from `waiting` where None.
    """
    protocol = type("Protocol", (TimedProtocol,), {"request_seconds": request_seconds})
    config = uvicorn.Config(
        app, http=protocol, ws="none", log_level="critical", proxy_headers=proxy, timeout_graceful_shutdown=1,
        limit_concurrency=VISITORS + 4 * waiting if connections is None else connections,
    )  # fmt: skip
    return uvicorn.Server(config)
