"""Fair measurement: subjects in separate processes, alternating runs, medians.

A subject is a function that does one piece of work. A factory makes it in a worker process, where it is timed, so that
its peak memory is its own. Runs of all subjects alternate, so that other load on the machine affects all of them.
"""

import multiprocessing
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from torch.utils.benchmark import timer  # waits until a GPU has done its work

Name = TypeVar("Name")


@dataclass
class Measurement:
    """Seconds of each run, the peak memory of the process so far in bytes, and the results of the runs."""

    times: list[float]
    peak: float = 0.0
    results: tuple = ()


class Worker:
    """Process with a subject.

    Args:
        make: function of a module (not a lambda) that returns the subject.
        arguments: its arguments.

    ```python
    >>> worker = Worker(make_model, "bert", "cpu")
    >>> seconds, peak, result = worker.run("forward", 512)
    ```
    """

    def __init__(self, make: Callable, *arguments):
        self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _make, (make, arguments))
        self.pool.submit(int)  # which starts the process

    def run(self, *arguments) -> tuple[float, float, Any]:
        """Call the subject; return seconds, peak memory in bytes, and its result."""
        return self.pool.submit(_run, *arguments).result()

    def close(self) -> None:
        self.pool.shutdown()


class Resident:
    """Subject in this process, with the same methods as a `Worker`.

    For a GPU: processes that share one would each keep what their largest run has allocated. The peak memory is that of
    this subject: what the others hold is subtracted.

    Args:
        make, arguments: see `Worker`.
    """

    def __init__(self, make: Callable, *arguments):
        before = torch.cuda.memory_allocated()
        self.subject = make(*arguments)
        self.held = torch.cuda.memory_allocated() - before

    def run(self, *arguments) -> tuple[float, float, Any]:
        """Call the subject; return seconds, peak memory in bytes, and its result."""
        others = torch.cuda.memory_allocated() - self.held
        seconds, peak, result = _timed(self.subject, *arguments)
        self.held = torch.cuda.memory_allocated() - others
        return seconds, peak - others, result

    def close(self) -> None:
        del self.subject


@contextmanager
def subjects(device: str, make: Callable, names: Iterable[Name], *arguments) -> Iterator[dict[Name, Worker | Resident]]:
    """Make the subjects `make(name, *arguments)` for a block: on a CPU in processes of their own, on a GPU in this."""
    kind = Resident if device == "cuda" else Worker
    made = {name: kind(make, name, *arguments) for name in names}
    try:
        yield made
    finally:
        for subject in made.values():
            subject.close()


def alternate(calls: dict[Name, tuple], runs: int, warm_up: bool = True, title: str = "") -> dict[Name, Measurement]:
    """Run all calls in turn, `runs` times, and return their measurements.

    Args:
        calls: a subject and its arguments, by name.
        warm_up: run each once before.
        title: of what is measured, for the line that shows the progress.
    """
    found = {name: [] for name in calls}
    with Console(stderr=True, highlight=False, markup=False).status("") as status:
        for run in range(0 if warm_up else 1, runs + 1):
            for name, (subject, *arguments) in calls.items():
                status.update(f"{title}: {name}, run {run} of {runs}")
                answer = subject.run(*arguments)
                if run:
                    found[name].append(answer)
    measured = {name: tuple(zip(*answers, strict=True)) for name, answers in found.items()}
    return {name: Measurement([*times], peaks[-1], results) for name, (times, peaks, results) in measured.items()}


def _make(make: Callable, arguments: tuple) -> None:
    """Make the subject of this process."""
    global _subject
    _subject = make(*arguments)


def _run(*arguments) -> tuple[float, float, Any]:
    return _timed(_subject, *arguments)


def _timed(subject: Callable, *arguments) -> tuple[float, float, Any]:
    """Return the seconds that a subject takes, the peak memory in bytes, and its result."""
    on_gpu = torch.cuda.is_initialized()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    start = timer()
    result = subject(*arguments)
    seconds = timer() - start
    return seconds, torch.cuda.max_memory_allocated() if on_gpu else peak_memory(), result


def peak_memory() -> float:
    """Return the peak memory of this process."""
    if sys.platform == "linux":  # getrusage may report the parent's peak there
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
