"""Console output of commands: summaries, errors as one line, and output of libraries that is hidden."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from logging import ERROR, WARNING, getLogger

from rich.table import Table
from rich.text import Text


def sentence_of(error: BaseException) -> str:
    """Return the message of an error on one line, without the number of a system error; its type if it has no
    message."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not {error.encoding}, from byte {error.start:,} on; `iconv -f GB18030 -t UTF-8` converts GBK"
    if isinstance(error, UnicodeEncodeError) and error.encoding == "utf-8":  # JSON can have \ud800, half of a character
        half = ascii(error.object[error.start])
        return f"UTF-8 cannot store the lone surrogate {half}: correct the JSON, or the name of a file, that has it"
    sentence = str(error)
    if isinstance(error, OSError) and error.strerror:  # without "[Errno 2]"
        names = " -> ".join(str(name) for name in (error.filename, error.filename2) if name)
        sentence = f"{names}: {error.strerror}" if names else error.strerror
    return " ".join(sentence.split()) or type(error).__name__


@cache
def report_once(sentence: str) -> None:
    """Print a sentence on stderr, unless this process has printed it before."""
    print(sentence, file=sys.stderr)


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


@contextmanager
def hidden(is_hidden: Callable[[], bool], hide: Callable[[], object], show: Callable[[], object]) -> Iterator[None]:
    """Hide output in a block. Output that the user has hidden before stays hidden."""
    was_hidden = is_hidden()
    if not was_hidden:
        hide()
    try:
        yield
    finally:
        if not was_hidden:
            show()


def no_warnings(library: str) -> AbstractContextManager[None]:
    """Return a block that hides the warnings of a library, unless the user chose another level than the default."""
    logger = getLogger(library)
    level = logger.level
    return hidden(
        lambda: logger.getEffectiveLevel() != WARNING, lambda: logger.setLevel(ERROR), lambda: logger.setLevel(level)
    )


def no_transformers_bar() -> AbstractContextManager[None]:
    """Return a block that hides transformers' own progress bar, which would mix with the caller's."""
    from transformers.utils import logging

    return hidden(
        lambda: not logging.is_progress_bar_enabled(), logging.disable_progress_bar, logging.enable_progress_bar
    )
