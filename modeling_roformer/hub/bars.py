"""huggingface_hub's own progress bars, which must not come between ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars


@contextmanager
def hub_bars(shown: bool) -> Iterator[None]:
    """Whether huggingface_hub shows its bars; a choice that its user made before is kept."""
    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
