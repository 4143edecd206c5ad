"""Fair measurement: subjects in separate processes, alternating runs, medians.

A subject is a function that does one piece of work. A factory makes it in a worker process, where it is timed, so that its
peak memory is its own. Runs of all subjects alternate, so that other load on the machine affects all of them.
"""

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

MB = 1e6


@dataclass
class Measurement:
    """Median of the runs in seconds, and the peak memory of the process so far in bytes."""

    seconds: float
    peak: float


class Worker:
    """Process with a subject.

    Args:
        make: function of a module (not a lambda) that returns the subject.
        arguments: its arguments.

    ```python
    >>> with Worker(make_model, "bert", "cpu") as worker:
    ...     seconds, peak, result = worker.run("forward", 512)
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

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def alternate(
    calls: dict[str, tuple], runs: int, progress: Callable[[str], None] = lambda name: None, warm_up: bool = True
) -> dict[str, Measurement]:
    """Run all calls in turn, `runs` times, and return their measurements.

    Args:
        calls: a worker and the arguments of its subject, by name.
        warm_up: run each once before.
        progress: called with the name before each run.
    """
    seconds, peaks = {name: [] for name in calls}, {}
    for run in range(0 if warm_up else 1, runs + 1):
        for name, (worker, *arguments) in calls.items():
            progress(name)
            elapsed, peaks[name], _ = worker.run(*arguments)
            if run:
                seconds[name].append(elapsed)
    return {name: Measurement(statistics.median(values), peaks[name]) for name, values in seconds.items()}


def in_turn(functions: dict[str, Callable[[], float]], runs: int) -> dict[str, float]:
    """Return the median of the seconds that each function returns. They run in turns, after one warm-up call each."""
    seconds = {name: [] for name in functions}
    for run in range(runs + 1):
        for name, function in functions.items():
            elapsed = function()
            if run:
                seconds[name].append(elapsed)
    return {name: statistics.median(values) for name, values in seconds.items()}


def close(workers: Iterable[Worker]) -> None:
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
            _synchronize()
            start = time.perf_counter()
            result = subject(*arguments)
            _synchronize()
            connection.send((time.perf_counter() - start, peak_memory(), result))
    except KeyboardInterrupt:
        pass
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def _on_gpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()


def _synchronize() -> None:
    if _on_gpu():
        sys.modules["torch"].cuda.synchronize()


def peak_memory() -> float:
    """Return the peak memory of the GPU if it is in use, otherwise of the process."""
    if _on_gpu():
        return sys.modules["torch"].cuda.max_memory_allocated()
    if sys.platform == "linux":  # getrusage may report the parent's peak there
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
