"""Errors that end a training run with a message of one sentence."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..output.console import sentence_of


class TrainingError(ValueError):
    """Error that keeps training from starting or resuming. The message is one sentence: the reason and what to do."""


class FieldError(TrainingError):
    """Error for an invalid value of a field. The message begins with `field`, its name."""

    def __init__(self, field: str, sentence: str):
        super().__init__(f"{field} {sentence}")
        self.field = field


class StoppedBySignal(TrainingError):
    """Error that ends a run after a signal, whose number is `signal`, when everything has been saved."""

    def __init__(self, sentence: str, signal: int):
        super().__init__(sentence)
        self.signal = signal


@contextmanager
def exit_on_error(program: str) -> Iterator[None]:
    """Exit with a one-line message on stderr if the block raises: with code 1, or 128 + the number of a signal.

    With ROFORMER_DEBUG=1, show the traceback instead.
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
        sys.exit(128 + error.signal if isinstance(error, StoppedBySignal) else 1)
