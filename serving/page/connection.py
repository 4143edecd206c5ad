"""A uvicorn server that closes connections with unfinished requests, and limits the number of connections.

uvicorn has a time limit between requests, but none for a request that stays unfinished.
"""

import asyncio
import json

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 30.0
VISITORS = 256  # connections beside those of queued requests, which have up to four each
_BODY = json.dumps({"detail": "the request did not end in time"}).encode()
_ANSWER = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class TimedProtocol(H11Protocol):
    """Connection that closes if a request, headers and body, is not complete within `request_seconds`."""

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
        """Run the timer from the possible beginning of a request to its end."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.request_seconds, self._end)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        # After a response has begun, another one would be read as part of it.
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_ANSWER)
        self.transport.close()


def server_of(
    app, *, waiting: int, proxy: bool = False, request_seconds: float = REQUEST_SECONDS, connections: int | None = None
) -> uvicorn.Server:
    """Return a server for the page's application.

    Args:
        waiting: length of the queue.
        proxy: trust the headers with which a reverse proxy on this machine describes visitors.
        request_seconds: time limit for a request to arrive.
        connections: most connections; others get status 503. By default it follows from `waiting`.
    """
    protocol = type("Protocol", (TimedProtocol,), {"request_seconds": request_seconds})
    config = uvicorn.Config(
        app, http=protocol, ws="none", log_level="critical", proxy_headers=proxy, timeout_graceful_shutdown=1,
        limit_concurrency=VISITORS + 4 * waiting if connections is None else connections,
    )  # fmt: skip
    return uvicorn.Server(config)
