"""A Ray to work on: one that runs already, or one on this machine for as long as a command takes."""

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..output.sentence import sentence_of
from .errors import ClusterError

LOCAL = "local"
_PATIENCE = 5  # seconds in which an address answers
# HTTP/2's preface and settings, which a gRPC server, as every Ray has one, answers with its own settings (frame type 4).
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_OBJECT_STORE = 1 << 30  # bytes at most, of a local Ray
# Read by Ray and its processes when they start.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_enable_metrics_collection": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # else Ray warns of its own ways
}
# As on macOS, the machine's own address is then 127.0.0.1, and Ray listens there and nowhere else.
_ENVIRONMENT_HERE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@contextmanager
def ray_session(address: str = LOCAL) -> Iterator[None]:
    """Connect this process with a Ray, and leave it in the end. A Ray that this process has joined before is kept.

    Args:
        address: of a cluster's head, `HOST:PORT`; "auto" for the one of which this machine is a part; "local" to start one
            here, without telemetry and dashboard, which listens on 127.0.0.1 alone.

    Raises:
        ClusterError: Ray is not installed, or nobody answers.
    """
    here = address == LOCAL
    for name, value in (_ENVIRONMENT | (_ENVIRONMENT_HERE if here else {})).items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise ClusterError(f"{error.name} is not installed: `pip install '.[ray]'` brings it") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"ray\.")  # about settings, which are ours
    if ray.is_initialized():
        yield
        return
    options = {"log_to_driver": False, "logging_level": logging.ERROR}
    if here:
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # in case that Ray was imported before it could read this
        options |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    else:
        _check_answers(address)
    try:
        ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        if here:
            raise ClusterError(f"Ray does not start on this machine: {sentence_of(error).rstrip('.')}") from None
        raise ClusterError(f"no Ray answers at {address}: {sentence_of(error).rstrip('.')}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Before Ray asks, which tries for minutes."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise ClusterError(f"{address} is Ray Client's: give the address of the cluster's head itself, HOST:PORT")
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PATIENCE) as connection:
            connection.sendall(_HELLO)
            if connection.recv(9)[3:4] != b"\4":
                raise OSError("what listens there is no Ray")
    except ValueError:
        raise ClusterError(f"{address!r} is no address of a Ray: give HOST:PORT, auto or local") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(
            f"no Ray answers at {address} ({reason}): `ray start --head` starts one there, and --ray alone one on this machine"
        ) from None
