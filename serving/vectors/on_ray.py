"""Shards computed by Ray Data: `map_batches` with an actor for each device, on a cluster or on a Ray of this machine.

Ray runs any code that is sent with its token. Its own token file is used, which Ray itself writes for every user to
read; see `_check_token`.
"""

import logging
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...output.extras import needs_extra
from ..errors import ServingError
from .texts import Shard

if TYPE_CHECKING:
    from .embedding import Made

LOCAL = "local"  # a Ray on this machine, started for one command
# Ray and its processes read these when they start: it requires a token, and listens on 127.0.0.1 alone, as on macOS.
_LOCAL = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
# No telemetry, no warnings about Ray's internals.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


def check_address(address: str) -> None:
    """Raise ServingError unless an address is "local", "auto" or HOST:PORT of a cluster's head."""
    if address not in (LOCAL, "auto") and not re.fullmatch(r"[^\s/]+:\d+", address):
        raise ServingError(
            f"{address!r} is not an address of Ray; expected HOST:PORT of a cluster (by default port 6379), auto for "
            "this machine's cluster, or local to start Ray on this machine"
        )


def compute_on_ray(
    shards: Callable[[], Iterator[Shard]],
    make_encoder: "Callable[[], Callable[[Shard], Made]]",
    address: str,
    workers: int | None,
    on_gpus: bool,
) -> "Iterator[Made]":
    """Yield the computed shards in any order, each once. Ray replaces killed workers, without a limit.

    Args:
        shards: returns the shards; it is called on this machine in the current folder, and again after an interruption.
        make_encoder: called once in each worker.
        address: see `check_address`.
        workers: number of workers; by default one per GPU, or one per machine without GPUs.
        on_gpus: whether each worker has a GPU, if there are any.

    Raises:
        ServingError: Ray cannot be reached, or a shard cannot be read or computed.
    """
    with _connected(address):
        import pandas
        import ray
        from ray.data import ActorPoolStrategy, DataContext, Datasource, read_datasource
        from ray.data.block import BlockMetadata
        from ray.data.datasource import ReadTask

        class Shards(Datasource):
            """Source with a row for each shard."""

            supports_distributed_reads = False  # the texts are on this machine alone

            def get_read_tasks(self, parallelism, *_args, **_kwargs):
                metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
                return [ReadTask(partial(_rows, shards, os.getcwd()), metadata)]

            def estimate_inmemory_data_size(self):
                return None

        count, resources = _workers(workers, on_gpus)
        context = DataContext.get_current()
        before = context.enable_progress_bars, context.target_max_block_size
        context.enable_progress_bars = False
        context.target_max_block_size = 1  # byte: a block, and so a task, is one shard
        try:
            found = read_datasource(Shards(), override_num_blocks=1, num_cpus=0).map_batches(
                _Worker, fn_constructor_args=(make_encoder,), batch_size=1, batch_format="pandas",
                compute=ActorPoolStrategy(size=count), **resources,
            )  # fmt: skip
            for batch in found.iter_batches(batch_size=1, batch_format="pandas", prefetch_batches=1):
                assert isinstance(batch, pandas.DataFrame)
                if isinstance(batch["item"][0], Exception):
                    raise batch["item"][0]
                yield batch["item"][0]
        except ray.exceptions.RayError as error:
            raise ServingError(f"Ray stopped: {str(error).strip().splitlines()[0]} Finished shards are kept") from None
        finally:
            context.enable_progress_bars, context.target_max_block_size = before


def _rows(shards: Callable[[], Iterator[Shard]], folder: str) -> Iterator:
    import pandas

    os.chdir(folder)
    try:
        for shard in shards():
            yield pandas.DataFrame({"item": [shard]})
    except (ValueError, OSError) as error:
        yield pandas.DataFrame({"item": [error]})


class _Worker:
    """Actor that computes shards; errors of texts and models are items too, since Ray would wrap them."""

    def __init__(self, make_encoder):
        self.make_encoder, self.encoder = make_encoder, None

    def __call__(self, batch):
        item = batch["item"][0]
        try:
            if isinstance(item, Shard):
                self.encoder = self.encoder or self.make_encoder()
                item = self.encoder(item)
        except (ValueError, OSError) as error:
            item = error
        return batch.assign(item=[item])


def _workers(workers: int | None, on_gpus: bool) -> tuple[int, dict[str, int]]:
    """Return the number of workers, and the resources of each: a GPU, or an equal share of the CPU cores."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = sum(int(node.get("GPU", 0)) for node in nodes) if on_gpus else 0
    cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
    most, count = gpus or sum(cpus), workers or gpus or len(cpus)
    if not 1 <= count <= most:
        kind = "GPUs" if gpus else "CPU cores"
        raise ServingError(f"--workers is {count:,}; expected 1 to {most:,}, the number of {kind}")
    if gpus:
        return count, {"num_gpus": 1, "num_cpus": 0}
    return count, {"num_cpus": next(n for n in range(max(cpus), 0, -1) if sum(c // n for c in cpus) >= count)}


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connect to Ray, or start one that listens on 127.0.0.1 alone and requires the token of this user's token file.

    Its sockets and logs are in a folder that no other user can enter.
    """
    if (ray := sys.modules.get("ray")) and ray.is_initialized():  # by the caller, whose connection is kept
        yield
        return
    local = address == LOCAL
    if local and ray and _LOCAL.items() - os.environ.items():
        raise ServingError(
            "ray was imported without the settings of a local Ray: call ray.init(), whose Ray is then used"
        )
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    os.environ |= _LOCAL if local else {}
    with needs_extra("ray", ServingError):
        import ray
        import ray.data
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    _check_token(create=local)
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        # Ray opens the folder that it gets to every user, so it gets one inside.
        here = {"include_dashboard": False, "_temp_dir": f"{folder}/r"} if local else {}
        try:
            try:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **here)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                raise ServingError(f"no Ray at {address}: {str(error).strip().splitlines()[0]}") from None
            yield
        finally:
            ray.shutdown()


def _check_token(create: bool) -> None:
    """Raise ServingError if other users can read Ray's token file, ~/.ray/auth_token; create the file if needed.

    A token from elsewhere (`RAY_AUTH_TOKEN`, `RAY_AUTH_TOKEN_PATH`) is not checked.
    """
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = Path.home() / ".ray" / "auth_token"
    if create:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError), open(path, "x", opener=partial(os.open, mode=0o600)) as file:
            file.write(secrets.token_hex(32))
    if path.exists() and (path.stat().st_mode & 0o077 or path.stat().st_uid not in (0, os.getuid())):
        raise ServingError(
            f"other users can read {path}, and run code as you on Ray: run `chmod 600 {path}`, or make a new token if "
            "they have read it"
        )
