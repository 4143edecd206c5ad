"""The settings of huggingface_hub's client: its token and its progress bars, which must not mix with ours."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from huggingface_hub import constants, get_token
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, tqdm

Advance = Callable[[int], object]


def usable_token(token: str | None) -> str | None:
    """Return the given token, or the one from HF_TOKEN or the login file.

    Raises:
        ValueError: the token has a character that tokens cannot have; libraries would show the token in their errors.
    """
    token = token or get_token()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("the token for the Hub has a character that is not allowed in tokens: copy it again")
    return token


def uses_xet() -> bool:
    """Return whether huggingface_hub transfers large files by Xet."""
    return find_spec("hf_xet") is not None and not constants.HF_HUB_DISABLE_XET


@contextmanager
def hub_bars(shown: bool) -> Iterator[None]:
    """Show or hide huggingface_hub's bars while the block runs; bars that the user disabled stay disabled."""
    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def bar_class(advance: Advance) -> type[tqdm]:
    """Return a bar class that shows nothing, and calls `advance` with the number of bytes of each piece."""

    class Bytes(tqdm):
        def __init__(self, *args, name: str | None = None, **options):
            super().__init__(*args, **options | {"disable": True})
            self.counts = not (name or "").endswith(".transfer")  # Xet has two bars

        def update(self, n: float | None = 1) -> None:
            if self.counts:
                advance(int(n or 0))

    return Bytes
