"""A progress bar over bytes, on stderr."""

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
