"""Progress bars: ours, over bytes, on stderr, and nothing of transformers' beside it."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


def byte_progress(shown: bool) -> Progress:
    """A bar that disappears when it is done, and never shows if stderr is not a terminal.

    >>> with byte_progress(shown=True) as bar:
    ...     bar.advance(bar.add_task("reading", total=100), 50)
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not (shown and console.is_terminal), transient=True)


@contextmanager
def no_transformers_bar() -> Iterator[None]:
    """Hide transformers' own progress bar, which would mix with the caller's."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def no_transformers_report() -> Iterator[None]:
    """Without transformers' list of the weights that a class has no use for, where the caller checks them or leaves some out."""
    from transformers.utils import logging

    shown = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(shown)
