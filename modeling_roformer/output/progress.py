"""Progress of long work, on stderr: bars on a terminal, and elsewhere, as in a log, a line now and then.

A line says what is done, how much, and how much there is. ROFORMER_PROGRESS_SECONDS sets the seconds from one line to
the next.
"""

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TextIO, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

T = TypeVar("T")
_BAR = re.compile(r"\|[^|]*\|")  # of tqdm, between the percentage and the numbers


def _seconds() -> float:
    """Return the seconds from one line to the next."""
    return float(os.environ.get("ROFORMER_PROGRESS_SECONDS", 60))


def progress_on_stderr(shown: bool, *columns: ProgressColumn) -> Progress:
    """Return rich's progress on stderr: bars of these columns, which disappear at the end, or `_Lines` if stderr is not
    a terminal."""
    console = Console(stderr=True)
    if shown and console.is_terminal:
        return Progress(*columns, console=console, transient=True)
    console.quiet = True  # up to rich 14.2, a hidden bar ends with an empty line
    return (_Lines if shown else Progress)(*columns, console=console, disable=True)


def byte_progress(shown: bool) -> Progress:
    """Return progress over bytes, as `progress_on_stderr` shows it.

    >>> with byte_progress(shown=True) as bar:
    ...     bar.advance(bar.add_task("reading", total=100), 50)
    """
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    return progress_on_stderr(shown, *columns)


def tracked(items: Iterable[T], description: str, shown: bool = True) -> Iterator[T]:
    """Yield the items, and show how many of them are done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with progress_on_stderr(shown, *columns) as bar:
        yield from bar.track(items, description=description)


class _Lines(Progress):
    """Progress that prints a line about each unfinished task now and then, in a thread, since a step may take long."""

    _thread: Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._stopped, self._thread = Event(), Thread(target=self._print, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            self._stopped.set()
            self._thread.join()
            self._thread = None

    def _print(self) -> None:
        while not self._stopped.wait(_seconds()):
            for task in self.tasks:
                columns = [column for column in self.columns if isinstance(column, ProgressColumn)]
                parts = [column(task) for column in columns if not isinstance(column, SpinnerColumn)]
                if not task.finished:
                    print(*(part.plain for part in parts if isinstance(part, Text)), file=sys.stderr, flush=True)


@contextmanager
def bars_as_lines() -> Iterator[None]:
    """Print the bars of tqdm in a block, which libraries show, as lines now and then if stderr is not a terminal."""
    if bars_are_shown():
        yield
        return
    stderr, sys.stderr = sys.stderr, _BarsAsLines(sys.stderr)
    try:
        yield
    finally:
        sys.stderr = stderr


def bars_are_shown() -> bool:
    """Return whether bars of tqdm are shown: on a terminal, or as lines."""
    return sys.stderr.isatty() or isinstance(sys.stderr, _BarsAsLines)


class _BarsAsLines:
    """Text stream that drops the bars of tqdm but for one now and then, which it writes as a line."""

    def __init__(self, stream: TextIO):
        self._stream, self._last, self._in_line = stream, time.monotonic(), False

    def __getattr__(self, name: str):
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if text.startswith("\r"):
            bar = " ".join(_BAR.sub(" ", text).split())
            bar = f"progress: {bar}" if bar[:1].isdigit() else bar  # a bar without a description
            if bar and time.monotonic() - self._last >= _seconds():
                self._stream.write(f"{bar}\n")
                self._stream.flush()
                self._last = time.monotonic()
        # tqdm moves from one bar to another by these.
        elif text.replace("\x1b[A", "").strip("\n") or self._in_line:
            self._stream.write(text)
            self._in_line = not text.endswith("\n")
        return len(text)
