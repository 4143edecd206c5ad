"""Console output of commands: progress bars, summaries, and errors as one line."""

from collections.abc import Callable, Mapping
from functools import cache
from logging import ERROR, WARNING, getLogger
from threading import Lock
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress


def sentence_of(error: BaseException) -> str:
    """Return the message of an error on one line, without the number of a system error; its type if it has no
    message."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not {error.encoding}, from byte {error.start:,} on; `iconv -f GB18030 -t UTF-8` converts GBK"
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


class Hidden:
    """Context manager that hides output in a block, for use by several threads at once.

    Output that is hidden before the first block, by the user, stays hidden after the last.
    """

    def __init__(self, is_hidden: Callable[[], bool], hide: Callable[[], object], show: Callable[[], object]):
        self._is_hidden, self._hide, self._show = is_hidden, hide, show
        self._lock, self._blocks, self._was_hidden = Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                self._was_hidden = self._is_hidden()
                if not self._was_hidden:
                    self._hide()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0 and not self._was_hidden:
                self._show()


@cache  # all threads share one
def no_warnings(library: str) -> Hidden:
    """Return a block that hides the warnings of a library, unless the user chose another level than the default."""
    logger, levels = getLogger(library), []

    def hide() -> None:
        levels.append(logger.level)
        logger.setLevel(ERROR)

    return Hidden(lambda: logger.getEffectiveLevel() != WARNING, hide, lambda: logger.setLevel(levels.pop()))


@cache
def no_transformers_bar() -> Hidden:
    """Return a block that hides transformers' own progress bar, which would mix with the caller's."""
    from transformers.utils import logging

    return Hidden(
        lambda: not logging.is_progress_bar_enabled(), logging.disable_progress_bar, logging.enable_progress_bar
    )
