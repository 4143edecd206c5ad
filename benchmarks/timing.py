"""Fair measurement: subjects in separate processes, alternating runs, medians.

A subject is a function that does one piece of work. A factory makes it in a worker process, where it is timed, so that
its peak memory is its own. Runs of all subjects alternate, so that other load on the machine affects all of them.
"""

import multiprocessing
import resource
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch.utils.benchmark import timer  # waits until a GPU has done its work

Name, Result = TypeVar("Name"), TypeVar("Result")


@dataclass
class Measurement:
    """Seconds of each run, and the peak memory of the process so far in bytes."""

    times: list[float]
    peak: float = 0.0

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.times)


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
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self.process.start()
        theirs.close()

    def run(self, *arguments):
        """Call the subject; return seconds, peak memory in bytes, and its result."""
        self.connection.send(arguments)
        try:
            answer = self.connection.recv()
        except EOFError:
            self.process.join()
            raise SystemExit(f"a measured process ended with exit code {self.process.exitcode}") from None
        if isinstance(answer, str):
            raise SystemExit(f"a measured process failed: {answer}")
        return answer

    def close(self) -> None:
        self.connection.close()
        self.process.join()


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

    def run(self, *arguments):
        """Call the subject; return seconds, peak memory in bytes, and its result."""
        others = torch.cuda.memory_allocated() - self.held
        seconds, peak, result = _timed(self.subject, arguments)
        self.held = torch.cuda.memory_allocated() - others
        return seconds, peak - others, result

    def close(self) -> None:
        del self.subject


def on(device: str) -> type[Worker | Resident]:
    """Return the kind of subjects on a device."""
    return Resident if device == "cuda" else Worker


def in_rounds(
    calls: dict[Name, Callable[[], Result]],
    runs: int,
    progress: Callable[[Name, int], None] = lambda name, run: None,
    warm_up: bool = True,
) -> dict[Name, list[Result]]:
    """Call all functions in turn, `runs` times, and return their results.

    Args:
        progress: called with the name and the number of the run before each, 0 for the warm-up.
        warm_up: call each once before.
    """
    results = {name: [] for name in calls}
    for run in range(0 if warm_up else 1, runs + 1):
        for name, call in calls.items():
            progress(name, run)
            result = call()
            if run:
                results[name].append(result)
    return results


def alternate(
    calls: dict[Name, tuple], runs: int, progress: Callable[[Name], None] = lambda name: None, warm_up: bool = True
) -> dict[Name, Measurement]:
    """Run all calls in turn, `runs` times, and return their measurements.

    Args:
        calls: a worker and the arguments of its subject, by name.
        warm_up: run each once before.
        progress: called with the name before each run.
    """
    functions = {name: partial(worker.run, *arguments) for name, (worker, *arguments) in calls.items()}
    results = in_rounds(functions, runs, lambda name, run: progress(name), warm_up)
    return {name: Measurement([seconds for seconds, *_ in found], found[-1][1]) for name, found in results.items()}


def compare(
    make: Callable, names: Iterable[str], arguments: tuple, runs: int, progress: Callable[[str], None]
) -> dict[str, Measurement]:
    """Measure subjects `make(name, *arguments)`, each in a process of its own, which they run without arguments."""
    workers = {name: Worker(make, name, *arguments) for name in names}
    measured = alternate({name: (worker,) for name, worker in workers.items()}, runs, progress)
    close(workers.values())
    return measured


def close(workers: Iterable[Worker | Resident]) -> None:
    for worker in workers:
        worker.close()


def _serve(connection, make: Callable, arguments: tuple) -> None:
    try:
        subject = make(*arguments)
        while True:
            try:
                arguments = connection.recv()
            except EOFError:
                return
            connection.send(_timed(subject, arguments))
    except KeyboardInterrupt:
        pass
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def _timed(subject: Callable, arguments: tuple) -> tuple:
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
