"""Errors that end a training run with a message of one sentence."""

import errno
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from modeling_roformer.data import DataError
from modeling_roformer.output.console import sentence_of
from modeling_roformer.output.progress import bars_as_lines

_FULL_ERRNOS = errno.ENOSPC, errno.EDQUOT
_FULL_MESSAGES = ("No space left on device", "os error 28", "Disk quota exceeded", "os error 122")  # of safetensors
_TORCH_WRITER = "inline_container.cc"  # torch names this file, and not the reason, if it cannot write
_NEARLY_FULL_BYTES = 64 << 20  # the file that failed may have been removed again


class TrainingError(ValueError):
    """Error that keeps training from starting or resuming. The message is one sentence: the reason and what to do."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a run that the same command resumes with `--resume`."""


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

    After Ctrl-C in a run that was begun by `start_run`, the message has the command that resumes it. With
    ROFORMER_DEBUG=1, show the traceback instead. In the block, bars of tqdm are lines where stderr is not a terminal.
    """
    try:
        with bars_as_lines():
            yield
    except KeyboardInterrupt as stop:
        advice = f"; resume with: {_command_to_resume()}" if isinstance(stop, Interrupted) else ""
        _print_error(program, f"interrupted{advice}")
        sys.exit(130)
    except Exception as error:
        if os.environ.get("ROFORMER_DEBUG"):
            raise
        _print_error(program, sentence_of(error))
        sys.exit(1)


def _print_error(program: str, sentence: str) -> None:
    for bar in list(getattr(tqdm, "_instances", ())):
        bar.close()  # tqdm would close it at the end, over the message
    print(f"{program}: {sentence}", file=sys.stderr)


def _command_to_resume() -> str:
    """Return the command of this process with --resume, for a shell."""
    words = sys.argv if "--resume" in sys.argv else [*sys.argv, "--resume"]
    launched = "RANK" in os.environ  # by torchrun, whose own options are not in sys.argv
    return shlex.join(words if launched else ["python", *words])


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Raise `Interrupted` for Ctrl-C in the block, and a TrainingError that names the folder if its disk is full."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted from stop
    except Exception as error:
        if place := _full_disk(error, folder):
            free = shutil.disk_usage(place).free / 1e6
            raise TrainingError(
                f"{place} cannot be written: its disk is full ({free:,.0f} MB are free). Free some space, and repeat "
                "the command with --resume"
            ) from error
        raise


def _full_disk(error: BaseException, folder: Path) -> Path | None:
    """Return the folder that could not be written because its disk is full, or None if an error has another reason."""
    chain = [error]
    while cause := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(cause)
    for link in chain:
        if isinstance(link, OSError) and link.errno in _FULL_ERRNOS:
            return Path(link.filename).absolute().parent if isinstance(link.filename, str) else folder
    messages = [str(link) for link in chain]
    if any(text in message for message in messages for text in _FULL_MESSAGES):
        return folder
    is_of_torch = any(_TORCH_WRITER in message and "open file failed" not in message for message in messages)
    return folder if is_of_torch and shutil.disk_usage(folder).free < _NEARLY_FULL_BYTES else None
