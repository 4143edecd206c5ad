"""huggingface_hub's own progress bars, which must not mix with ours."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, tqdm

Advance = Callable[[int], object]


@contextmanager
def hub_bars(shown: bool) -> Iterator[None]:
    """Whether huggingface_hub shows its bars; if its user disabled them before, they stay so."""
    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def bar_class(advance: Advance) -> type[tqdm]:
    """What huggingface_hub reports a download to."""

    class Bytes(tqdm):
        def __init__(self, *args, name: str | None = None, **options):
            super().__init__(*args, **options | {"disable": True})
            self.counts = not (name or "").endswith(".transfer")  # Xet has two bars

        def update(self, n: float | None = 1) -> None:
            if self.counts:
                advance(int(n or 0))

    return Bytes
