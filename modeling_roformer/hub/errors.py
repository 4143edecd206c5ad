"""Errors of the Hub as one sentence, and the settings of huggingface_hub's client: its token and its bars."""

import sys
from contextlib import AbstractContextManager, nullcontext

from huggingface_hub import constants, get_token
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

from modeling_roformer.output.console import hidden, sentence_of

LOG_IN = "log in with `hf auth login`, or set HF_TOKEN to a token that may {verb}"
_MAY_PASS = (None, 429, 500, 502, 503, 504)  # None for a connection that was refused or cut
# The base of all errors of httpx, which huggingface_hub 1 uses, or of httpx2, which huggingface_hub 2 uses.
_HTTPError = HfHubHTTPError.__bases__[0]


class HubError(OSError):
    """A failure of the Hub, or a request that it refused, in one sentence."""


def hub_error(error: BaseException, consequence: str, token: str | None, verb: str = "read") -> HubError:
    """Return the error to raise in place of one that huggingface_hub raised, without the token.

    `consequence` tells what the user can rely on; `verb` is what the token must allow, `write` or `read`.
    """
    link: BaseException | None = error
    while link is not None and not isinstance(link, (_HTTPError, HubError)):
        link = link.__cause__ or link.__context__
    error = link or error  # huggingface_hub wraps the response to an upload
    advice, status = "", _status(error)
    if status in (401, 403):
        advice = f": {LOG_IN.format(verb=verb)}"
    elif status in (409, 412):
        advice = ": somebody else may have changed the repository at the same time, so try again"
    sentence = f"{consequence} ({constants.ENDPOINT}): {sentence_of(error)}{advice}"
    return HubError(sentence.replace(token, "***") if token else sentence)


def may_pass(error: BaseException) -> bool:
    """Return whether the same request may succeed soon: the Hub is busy, or the connection broke."""
    return isinstance(error, _HTTPError) and _status(error) in _MAY_PASS


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    return None if response is None else response.status_code


def usable_token(token: str | None) -> str | None:
    """Return the token, or the one from HF_TOKEN or the login file; ValueError if libraries would show it in errors."""
    token = token or get_token()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("the token for the Hub has a character that is not allowed in tokens: copy it again")
    return token


def hub_bars(shown: bool) -> AbstractContextManager:
    """Return a block that shows huggingface_hub's bars on a terminal, or hides them."""
    return (
        nullcontext()
        if shown and sys.stderr.isatty()
        else hidden(are_progress_bars_disabled, disable_progress_bars, enable_progress_bars)
    )
