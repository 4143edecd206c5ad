"""Stream of items through Ray Data, with one worker per device, and results in any order.

Ray replaces a killed worker and gives its item to another one, without a limit. To stop after TRIES workers, each
worker first notes the item that it begins with an actor, which outlives the workers.
"""

import os
import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

from ..output.console import sentence_of
from .address import LOCAL, ClusterError
from .session import ray_session

TRIES = 3


class Watch:
    """Record of the parts of an item, numbered from 0, that a worker processes.

    suspects: the parts that the last worker was processing when it was killed; each is to be processed alone.
    """

    def __init__(self, note: Callable[[Sequence[int]], None] = lambda parts: None, suspects: Sequence[int] = ()):
        self.note, self.suspects = note, list(suspects)

    def __call__(self, parts: Sequence[int]) -> None:
        """Note that these parts are processed next."""
        self.note(list(parts))


def map_on_ray(
    items: Callable[[], Iterator],
    make_work: Callable[[], Callable],
    describe: Callable[[Any, Sequence[int]], str],
    *,
    address: str = LOCAL,
    workers: int | None = None,
    on_gpus: bool = True,
    cores: int | None = None,
) -> Generator:
    """Yield the result of the work for each item, in any order and each once, even if workers are killed.

    Args:
        items: returns an iterator of picklable items; the length of an item, if it has one, is its number of parts. It
            is called on this machine in the current folder, again after an interruption, and must return the same
            items.
        make_work: called in each worker, returns a function of an item and a `Watch` with a picklable result.
        describe: names parts of an item in an error.
        address: see `ray_session`.
        workers: number of workers; None for as many as fit.
        on_gpus: whether each worker has a GPU, if there are any.
        cores: CPU cores of a worker without a GPU; None for an even share, or for all of a machine if `workers` is
            None.

    Raises:
        ClusterError: Ray cannot be reached, an item's workers were killed three times, or items or work raised a
            ValueError or OSError.
    """
    with ray_session(address):
        import pyarrow
        import ray
        from ray.data import ActorPoolStrategy, DataContext, Datasource, read_datasource
        from ray.data.block import BlockMetadata
        from ray.data.datasource import ReadTask

        class Items(Datasource):
            """Data source with one task that reads all items, a row for each."""

            def get_read_tasks(self, parallelism, *_args, **_kwargs):
                metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
                return [ReadTask(partial(_rows, items, os.getcwd()), metadata)]

            def estimate_inmemory_data_size(self):
                return None

        here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        attempts = ray.remote(Attempts).options(num_cpus=0, label_selector=here).remote()
        count, resources = _share(workers, on_gpus, cores)
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # byte: each item is a block, and each block a task
        results: Any = (
            read_datasource(Items(), override_num_blocks=1, num_cpus=0, label_selector=here)
            .map_batches(
                _Worker,
                fn_constructor_args=(make_work, describe, attempts),
                batch_size=1,
                batch_format="pyarrow",
                zero_copy_batch=True,
                compute=ActorPoolStrategy(size=count),
                **resources,
            )
            .iter_batches(batch_size=1, batch_format="pyarrow", prefetch_batches=1)
        )
        for table in results:
            assert isinstance(table, pyarrow.Table)
            (row,) = table.to_pylist()
            if row["error"]:
                raise ClusterError(row["error"])
            yield pickle.loads(row["data"])


def _share(workers: int | None, on_gpus: bool, cores: int | None) -> tuple[int, dict[str, Any]]:
    """Return the number of workers, and the resources of each."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cpus, gpus = ([int(node.get(kind, 0)) for node in nodes] for kind in ("CPU", "GPU"))
    on_gpus = on_gpus and sum(gpus) > 0
    most, kind = (sum(gpus), "GPUs") if on_gpus else (sum(cpus) // (cores or 1), "CPU cores")
    if workers is not None and not 1 <= workers <= most:
        raise ClusterError(f"--workers is {workers:,}; expected 1 to {most:,}, the number of {kind}")
    if on_gpus:
        return workers or most, {"num_gpus": 1, "num_cpus": 0}
    if cores is None:
        cores = max(cpus) if workers is None else min(max(cpus), sum(cpus) // workers)
    return workers or max(1, sum(n // cores for n in cpus)), {"num_cpus": cores}


def _row(number: int, data: bytes | None, error: str | None = None):
    import pyarrow

    kinds = {"number": pyarrow.int64(), "data": pyarrow.large_binary(), "error": pyarrow.large_string()}
    row = {"number": number, "data": data, "error": error}
    return pyarrow.Table.from_pylist([row], pyarrow.schema(kinds))


def _rows(items: Callable[[], Iterator], folder: str) -> Iterator:
    number = -1
    try:
        os.chdir(folder)
        for number, item in enumerate(items()):
            yield _row(number, pickle.dumps(item))
    except (ValueError, OSError) as error:
        yield _row(number + 1, None, sentence_of(error))


class Attempts:
    """Actor with the items that were begun and are not done; it outlives the workers."""

    def __init__(self):
        self.now: dict[int, list[int]] = {}
        self.ended: dict[int, list[list[int]]] = {}

    def begin(self, number: int, parts: int) -> list[list[int]]:
        """Return the parts at which earlier workers ended."""
        if number in self.now:
            self.ended.setdefault(number, []).append(self.now[number])
        self.now[number] = list(range(parts))
        return self.ended.get(number, [])

    def note(self, number: int, parts: list[int]) -> None:
        self.now[number] = parts

    def done(self, number: int) -> None:
        self.now.pop(number, None)
        self.ended.pop(number, None)


class _Worker:
    """Worker that Ray Data calls for each item."""

    def __init__(self, make_work, describe, attempts):
        self.make_work, self.describe, self.attempts, self.work = make_work, describe, attempts, None

    def __call__(self, table):
        import ray

        (row,) = table.to_pylist()
        if row["error"]:
            return table
        number, item = row["number"], pickle.loads(row["data"])
        parts = len(item) if hasattr(item, "__len__") else 1
        ended = ray.get(self.attempts.begin.remote(number, parts))
        try:
            if culprits := in_common(ended):
                raise ClusterError(
                    f"{self.describe(item, culprits)}: the worker was killed {len(ended)} times, perhaps for lack of "
                    "memory; finished results are kept"
                )
            if self.work is None:
                self.work = self.make_work()
            watch = Watch(lambda parts: ray.get(self.attempts.note.remote(number, parts)), suspects(ended, parts))
            found = _row(number, pickle.dumps(self.work(item, watch)))
        except (ValueError, OSError) as error:
            found = _row(number, None, sentence_of(error))
        ray.get(self.attempts.done.remote(number))
        return found


def in_common(ended: Sequence[Sequence[int]]) -> list[int]:
    """Return the parts at which each of the last three workers ended; none if there were fewer workers."""
    return sorted(set.intersection(*map(set, ended[-TRIES:]))) if len(ended) >= TRIES else []


def suspects(ended: Sequence[Sequence[int]], parts: int) -> list[int]:
    """Return the parts to process alone: those of the last worker, but all parts only if two workers ended before the
    first part."""
    if not ended or (len(ended[-1]) == parts > 1 and len(ended) < TRIES - 1):
        return []
    return list(ended[-1])
