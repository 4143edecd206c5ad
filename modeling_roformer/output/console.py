"""Console output of commands: progress bars, summaries, and errors as one line."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from logging import ERROR, WARNING, getLogger
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")


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


class _Hidden:
    """State of a library that is changed while any thread needs it so, and restored after the last one."""

    def __init__(self):
        self.lock, self.callers = Lock(), 0

    @contextmanager
    def __call__(self, hide: Callable[[], T], restore: Callable[[T], object]) -> Iterator[None]:
        """Hide something while the block runs. `hide` returns what `restore` gets."""
        with self.lock:
            if not self.callers:
                self.before = hide()
            self.callers += 1
        try:
            yield
        finally:
            with self.lock:
                self.callers -= 1
                if not self.callers:
                    restore(self.before)


_HIDDEN: dict[str, _Hidden] = defaultdict(_Hidden)


def no_warnings(library: str) -> AbstractContextManager[None]:
    """Hide the warnings of a library's logger while a block runs, unless the user chose another level than the
    default."""
    logger = getLogger(library)

    def hide() -> int:
        level = logger.level
        if logger.getEffectiveLevel() == WARNING:
            logger.setLevel(ERROR)
        return level

    return _HIDDEN[library](hide, logger.setLevel)


def no_transformers_bar() -> AbstractContextManager[None]:
    """Hide transformers' own progress bar, which would mix with the caller's."""
    from transformers.utils import logging

    def hide() -> bool:
        shown = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        return shown

    return _HIDDEN["bar"](hide, lambda shown: logging.enable_progress_bar() if shown else None)


def no_transformers_report() -> AbstractContextManager[None]:
    """Hide transformers' report of unused weights, for callers that check the weights or drop some on purpose."""
    from transformers.utils import logging

    def hide() -> int:
        shown = logging.get_verbosity()
        logging.set_verbosity_error()
        return shown

    return _HIDDEN["report"](hide, logging.set_verbosity)
