"""Console output of commands: progress bars, summaries, and errors as one line."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import ERROR, WARNING, getLogger
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress


def sentence_of(error: BaseException) -> str:
    """Return the message of an error on one line, without the number of a system error; its type if it has no
    message."""
    sentence = str(error)
    if isinstance(error, OSError) and error.strerror:  # without "[Errno 2]"
        names = " -> ".join(str(name) for name in (error.filename, error.filename2) if name)
        sentence = f"{names}: {error.strerror}" if names else error.strerror
    return " ".join(sentence.split()) or type(error).__name__


def summary_table(rows: Mapping[str, str | None]) -> Table:
    """Return a table of two columns with the rows that are not None. Texts are shown as they are, without rich's
    markup."""
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")  # names and paths are shown in full
    for name, value in rows.items():
        if value is not None:
            table.add_row(Text(name), Text(value))
    return table


def bar_on_stderr(shown: bool) -> dict:
    """Return rich's arguments for a progress bar on stderr that disappears at the end. It is hidden if stderr is not a
    terminal."""
    console = Console(stderr=True)
    console.quiet = not (shown and console.is_terminal)  # up to rich 14.2, a hidden bar ends with an empty line
    return dict(console=console, disable=console.quiet, transient=True)


def byte_progress(shown: bool) -> "Progress":
    """Return a progress bar over bytes, as `bar_on_stderr` shows it.

    >>> with byte_progress(shown=True) as bar:
    ...     bar.advance(bar.add_task("reading", total=100), 50)
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, **bar_on_stderr(shown))


@contextmanager
def no_warnings(library: str) -> Iterator[None]:
    """Hide the warnings of a library's logger while a block runs, unless the user chose another level than the
    default."""
    logger = getLogger(library)
    level = logger.level
    if logger.getEffectiveLevel() == WARNING:
        logger.setLevel(ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


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
    """Hide transformers' report of unused weights, for callers that check the weights or drop some on purpose."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
