"""What ends a training run in one sentence."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..output.console import sentence_of


class TrainingError(ValueError):
    """Training cannot begin or go on; the text is one sentence that says why, and what to do."""


class FieldError(TrainingError):
    """A field has a value that it cannot have; `field` is its name, with which the sentence begins."""

    def __init__(self, field: str, sentence: str):
        super().__init__(f"{field} {sentence}")
        self.field = field


class Stopped(TrainingError):
    """A signal asked the run to stop, and everything is saved.

    signal: its number.
    """

    def __init__(self, sentence: str, signal: int):
        super().__init__(sentence)
        self.signal = signal


@contextmanager
def one_sentence(program: str) -> Iterator[None]:
    """End the program with one sentence on stderr where the block raises: exit code 1, or 128 + a signal's number.

    With ROFORMER_DEBUG=1 the traceback is shown in its place.

    >>> with one_sentence("pretrain_mlm"):
    ...     main()
    """
    try:
        yield
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if os.environ.get("ROFORMER_DEBUG"):
            raise
        print(f"{program}: {sentence_of(error)}", file=sys.stderr)
        sys.exit(128 + error.signal if isinstance(error, Stopped) else 1)
