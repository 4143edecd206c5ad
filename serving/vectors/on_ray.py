"""Shards computed by Ray: an `ActorPool` with an actor for each device, on a cluster or on a Ray of this machine.

Ray runs any code that is sent with its token. Its own token file is used, which Ray itself writes for every user to
read; see `_check_token`.
"""

import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from modeling_roformer.output.extras import needs_extra

from ..errors import ServingError
from .texts import Shard
from .vector_folder import ComputedShard

LOCAL = "local"  # a Ray on this machine, started for one command
# Ray and its processes read these when they start: it requires a token, and listens on 127.0.0.1 alone, as on macOS.
_LOCAL_ENVIRONMENT = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
# No telemetry, no warnings about Ray's internals.
_QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


def compute_on_ray(
    shards: Iterator[Shard],
    make_encoder: Callable[[], Callable[[Shard], ComputedShard]],
    address: str,
    workers: int | None,
    on_gpus: bool,
) -> Iterator[ComputedShard]:
    """Yield the computed shards in any order, each once. Ray replaces killed workers, without a limit.

    Args:
        shards: read on this machine while the workers compute, two ahead of each.
        make_encoder: called once in each worker.
        address: "local", "auto", or HOST:PORT of a cluster's head.
        workers: number of workers; by default one per GPU, or one per machine without GPUs.
        on_gpus: whether each worker has a GPU, if there are any.

    Raises:
        ServingError: Ray cannot be reached, or a shard cannot be read or computed.
    """
    with _connected(address):
        import ray
        from ray.util import ActorPool

        count, resources = _workers(workers, on_gpus)
        actor = ray.remote(max_restarts=-1, max_task_retries=-1, **resources)(_Worker)
        pool = ActorPool([actor.remote(make_encoder) for _ in range(count)])
        waiting = 0
        try:
            while (shard := next(shards, None)) or waiting:
                if shard:
                    pool.submit(lambda worker, shard: worker.compute.remote(shard), shard)
                    waiting += 1
                if not shard or waiting > 2 * count:
                    result = pool.get_next_unordered()
                    waiting -= 1
                    if isinstance(result, Exception):
                        raise result
                    yield result
        except ray.exceptions.RayError as error:
            raise ServingError(f"Ray stopped: {str(error).strip().splitlines()[0]} Finished shards are kept") from None


class _Worker:
    """Actor that computes shards. It returns errors of texts and models, since Ray would wrap them."""

    def __init__(self, make_encoder):
        self.make_encoder, self.encoder = make_encoder, None

    def compute(self, shard):
        try:
            self.encoder = self.encoder or self.make_encoder()
            return self.encoder(shard)
        except (ValueError, OSError) as error:
            return error


def _workers(workers: int | None, on_gpus: bool) -> tuple[int, dict[str, int]]:
    """Return the number of workers, and the resources of each: a GPU, or an equal share of the CPU cores."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = sum(int(node.get("GPU", 0)) for node in nodes) if on_gpus else 0
    cpus = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
    limit = gpus or sum(cpus)
    count = workers or gpus or len(cpus)
    if not 1 <= count <= limit:
        unit = "GPUs" if gpus else "CPU cores"
        raise ServingError(f"--workers is {count:,}; expected 1 to {limit:,}, the number of {unit}")
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
    if local and ray and _LOCAL_ENVIRONMENT.items() - os.environ.items():
        raise ServingError(
            "ray was imported without the settings of a local Ray: call ray.init(), whose Ray is then used"
        )
    for name, value in _QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ |= _LOCAL_ENVIRONMENT if local else {}
    with needs_extra("ray", ServingError):
        import ray
    _check_token(create=local)
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        # Ray opens the folder that it gets to every user, so it gets one inside.
        options = {"include_dashboard": False, "_temp_dir": f"{folder}/r"} if local else {}
        try:
            try:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
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
