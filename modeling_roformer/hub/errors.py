"""Errors of the Hub, each as one sentence."""

import importlib
from collections.abc import Iterator

from huggingface_hub.errors import HfHubHTTPError

from ..output.console import sentence_of

LOG_IN = "log in with `hf auth login`, or set HF_TOKEN to a token that may {verb}"

# huggingface_hub 1 is built on httpx, 2 on httpx2: the same classes in another package.
_http = importlib.import_module(
    next(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError").__module__.partition(".")[0]
)

# A connection that was refused, cut or silent for too long, but not a wrong configuration of this machine.
BROKEN_CONNECTION = (_http.TimeoutException, _http.NetworkError, _http.RemoteProtocolError)

NO_CONNECTION = (_http.ConnectError, _http.ConnectTimeout)


class HubError(OSError):
    """A failure of the Hub, or a request that it refused, in one sentence."""


class Unanswered(HubError):
    """A commit that was sent and got no response, so it may have been made."""


class RetriesExhausted(Exception):
    """The end of the tries or of the time for a request; the text is the reason for the last failure."""


def hub_error(error: BaseException, repo_id: str, verb: str, consequence: str, token: str | None) -> HubError:
    """Return the error to raise in place of one that a library raised.

    Args:
        error: its chain of causes has the Hub's response.
        repo_id: the repository that the sentence names.
        verb: what was tried, `write to` or `read`.
        consequence: what the user can rely on, "nothing was published" for example.
        token: hidden wherever it appears in the sentence.
    """
    reason = next((str(link) for link in chain(error) if isinstance(link, HubError)), None)
    sentence = f"{consequence}: {reason or reason_of(error, repo_id, verb)}"
    return HubError(sentence.replace(token, "***") if token else sentence)


def shown(error: BaseException, token: str | None) -> BaseException | None:
    """Return an error to show as the cause of another; None if it, or one of its own causes, contains the token."""
    return None if token and any(token in f"{link}{link!r}" for link in chain(error)) else error


def reason_of(error: BaseException, repo_id: str, verb: str = "write") -> str:
    """Return why a request failed, as part of a sentence."""
    links = list(chain(error))
    for link in links:
        if isinstance(link, RetriesExhausted):
            return str(link)
        if isinstance(link, HfHubHTTPError) and link.response is not None:
            return _refusal(link, repo_id, verb)
    if broken := next((link for link in links if isinstance(link, _http.TransportError)), None):
        return connection_failure(broken)
    return sentence_of(error)


def connection_failure(error: BaseException) -> str:
    """Return the sentence for a connection that failed."""
    return f"the Hub could not be reached, or the connection broke ({sentence_of(error)})"


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then the errors that caused it."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _refusal(error: HfHubHTTPError, repo_id: str, verb: str) -> str:
    """Return the meaning of an error response."""
    response = error.response
    status = response.status_code
    said = response.headers.get("X-Error-Message") or f"HTTP {status}"
    log_in = LOG_IN.format(verb=verb.split()[0])
    has_token = "Authorization" in response.request.headers
    unknown = "the Hub does not accept the token" if has_token else f"{repo_id} is private, or does not exist"
    if response.headers.get("X-Error-Code") == "RevisionNotFound":
        return f"{repo_id} has no such revision ({said})"
    if status in (409, 412) and verb != "read":
        return f"{repo_id} was changed by somebody else at the same time: push again"
    reasons = {
        400: f"the Hub rejected the files ({' '.join((error.server_message or said).split())})",
        401: f"{unknown} ({said}): {log_in}",
        403: f"the token may not {verb} {repo_id} ({said}): {log_in}",
        404: f"the Hub has no {repo_id} ({said}), or the token may not see it",
        413: f"the files are too large for the Hub ({said})",
    }
    return reasons.get(status) or f"the Hub returned {said}"
