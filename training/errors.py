"""Errors that end a training run with a message of one sentence."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from ..data import DataError
from ..output.console import sentence_of


class TrainingError(ValueError):
    """Error that keeps training from starting or resuming. The message is one sentence: the reason and what to do."""


@contextmanager
def raises_training_error() -> Iterator[None]:
    """Turn a DataError in the block, or in the decorated function, into a TrainingError with the same sentence."""
    try:
        yield
    except DataError as error:
        raise TrainingError(str(error)) from None


@contextmanager
def exit_on_error(program: str) -> Iterator[None]:
    """Exit with code 1 and a one-line message on stderr if the block raises.

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
        for bar in list(getattr(tqdm, "_instances", ())):
            bar.close()  # it would be closed at the end, over the message
        print(f"{program}: {sentence_of(error)}", file=sys.stderr)
        sys.exit(1)
