"""Retry requests that the Hub could not serve for the moment: five tries per request, 90 seconds in all. If no
connection was ever made, as without a network, two tries are enough.

huggingface_hub itself retries some requests up to six times and others never. It sleeps for any number of seconds in
Retry-After, and cannot read a date there. The whole process shares its HTTP client. Inside `retrying()` that client
retries by the rules here. RetriesExhausted, which huggingface_hub does not catch, ends the tries.
"""

import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from math import ceil
from time import monotonic as clock
from time import sleep
from time import time as now
from typing import Any

from huggingface_hub.utils import get_session

from ..output.console import no_warnings
from .client import uses_xet
from .errors import BROKEN_CONNECTION, NO_CONNECTION, RetriesExhausted, connection_failure

logger = logging.getLogger(__name__)
TRIES = 5
TRIES_TO_CONNECT = 2
SECONDS = 90.0
BUSY = frozenset({408, 429, 500, 502, 503, 504})
# Used if huggingface_hub sets no timeouts of its own. `read` is the time without a single byte; a commit takes longer.
TIMEOUTS = {"connect": 10.0, "read": 30.0, "write": 60.0, "pool": None}
COMMIT_READ = 60.0
# The same limits for Xet, which transfers large files if hf_xet is installed, with a client of its own. It reads them
# once, when the first transfer of the process starts.
XET = {
    "HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": f"{TRIES - 1}",
    "HF_XET_CLIENT_RETRY_MAX_DURATION": f"{SECONDS:.0f}s",
    "HF_XET_CLIENT_RETRY_BASE_DELAY": "2s",
}
# Not retried here: without a response, it is unknown whether the commit was made.
COMMIT = re.compile(r"/api/models/[^?]+/commit/")

_one_at_a_time = threading.RLock()
_body = threading.local()  # .file: the file that this thread is sending, to be sent again from the same position


class RetryBudget:
    """The tries and seconds that one `push` or one `pull` has left."""

    def __init__(self):
        self.reached = False  # the Hub has answered
        self.unreached = 0  # tries before that without a connection
        self.waited = 0.0  # seconds in which at least one request was waiting
        self.waiting_until = 0.0
        self.downloads: Counter[str] = Counter()
        self.lock = threading.Lock()

    def wait(self, failure: object, tried: int, since: float) -> None:
        """Wait before a failed request is retried.

        Args:
            failure: the response, or the connection's error.
            tried: the number of tries so far.
            since: the start, by `clock`, of the work that must end within 90 seconds.

        Raises:
            RetriesExhausted: five tries failed, or the wait would end after the 90 seconds.
        """
        reason, asked = _reason_and_wait(failure)
        if tried >= TRIES:
            raise RetriesExhausted(f"{reason}, {tried} times in a row")
        wait = float(2 ** (tried - 1)) if asked is None else asked
        with self.lock:
            start = clock()
            waited = self.waited + max(0.0, start + wait - max(start, self.waiting_until))
            if waited > SECONDS or start + wait - since > SECONDS:
                again = f"try again in {ceil(wait):,} seconds" if asked is not None else "try again later"
                raise RetriesExhausted(f"{reason}: {again}")
            self.waited, self.waiting_until = waited, max(start + wait, self.waiting_until)
        logger.warning(f"{reason}; trying again in {ceil(wait)} s")
        sleep(wait)

    def send(self, plain: Callable, request, **options):
        """Send a request by a client's own `send`, with retries."""
        limited = any(request.extensions.get("timeout", {}).values())
        if COMMIT.search(str(request.url)):
            request.extensions["timeout"] = TIMEOUTS | {"read": COMMIT_READ}
            return plain(request, **options)
        file = getattr(_body, "file", None) if request.method == "PUT" else None
        start = file and file.tell()
        tried, since = 0, clock()
        while True:
            if not limited:
                left = SECONDS - (clock() - since) if tried else SECONDS
                request.extensions["timeout"] = TIMEOUTS | {"read": min(TIMEOUTS["read"], max(1.0, left))}
            if options.get("stream"):
                self._count_download(str(request.url).partition("?")[0])
            try:
                response = plain(request, **options)
                self.reached = True
                if response.status_code not in BUSY:
                    return response
                response.close()
                failure: object = response
            except BROKEN_CONNECTION as error:
                failure = error
                if isinstance(error, NO_CONNECTION) and not self.reached:
                    self.unreached += 1
                    if self.unreached >= TRIES_TO_CONNECT:
                        raise RetriesExhausted(connection_failure(error)) from None
            tried += 1
            if tried == 1 and file is not None:
                since = clock()  # sending a file may take an hour
            self.wait(failure, tried, since)
            if file is not None:
                file.seek(start)

    def _count_download(self, url: str) -> None:
        # huggingface_hub resumes a download that broke off with another request for the rest.
        with self.lock:
            self.downloads[url] += 1
            if self.downloads[url] > TRIES:
                raise RetriesExhausted(f"the download broke off {TRIES} times")


@contextmanager
def retrying() -> Iterator[RetryBudget]:
    """Retry huggingface_hub's requests by the rules of this file while the block runs.

    The client belongs to the whole process, so one thread at a time enters the block; meanwhile, requests of other
    threads are retried by the same rules.
    """
    # The failure of the last try raises an error, so the warnings about failed tries are hidden.
    with _one_at_a_time, no_warnings("huggingface_hub"), _xet_settings():
        budget = RetryBudget()
        client = get_session()
        plain = client.send
        client.send = lambda request, **options: budget.send(plain, request, **options)
        try:
            yield budget
        finally:
            del client.send


@contextmanager
def sending(file) -> Iterator[None]:
    """Send parts of `file`, which can seek, in this thread's uploads while the block runs."""
    _body.file = file
    try:
        yield
    finally:
        _body.file = None


def _reason_and_wait(failure: Any) -> tuple[str, float | None]:
    """Return why a request failed, and the seconds to wait that the response has, or None."""
    if isinstance(failure, BaseException):
        return connection_failure(failure), None
    asked = _retry_after(failure.headers)
    if failure.status_code == 429:
        return "the Hub accepts no more requests for now (HTTP 429)", asked
    return f"the Hub returned HTTP {failure.status_code}", asked


def _retry_after(headers) -> float | None:
    """Return the seconds to wait, by Retry-After (RFC 9110, 10.2.3: seconds or a date) or the Hub's `ratelimit`."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}", text):
        return float(text)
    if text:
        try:
            date = parsedate_to_datetime(text)
            return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now())
        except (ValueError, TypeError, OverflowError):
            return None
    match = re.search(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})", headers.get("ratelimit", ""))
    return float(match[1]) if match else None


@contextmanager
def _xet_settings() -> Iterator[None]:
    # Native threads of other libraries may read the environment meanwhile, so it is changed only where it is needed.
    chosen = {name: value for name, value in XET.items() if name not in os.environ} if uses_xet() else {}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            os.environ.pop(name, None)
