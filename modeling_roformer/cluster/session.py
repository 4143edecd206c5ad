"""Connection to Ray: to a running cluster, or to one started on this machine for one command."""

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..output.console import sentence_of
from ..output.extras import needs_extra
from .address import LOCAL, ClusterError, host_and_port
from .private_session import check_token_file, private_session

_TIMEOUT = 5  # seconds in which an address must respond
# HTTP/2's preface and settings. Ray's gRPC server responds with its own settings (frame type 4).
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_OBJECT_STORE = 1 << 30  # most bytes, of a local Ray
# Ray and its processes read these when they start.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no telemetry
    "RAY_enable_metrics_collection": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # no warnings about Ray's internals
}
# Makes Ray listen on 127.0.0.1 alone, as on macOS.
_ENVIRONMENT_HERE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@contextmanager
def ray_session(address: str = LOCAL) -> Iterator[None]:
    """Connect this process to Ray, and disconnect it at the end. An existing connection is used and kept.

    Args:
        address: `HOST:PORT` of a cluster's head; "auto" for this machine's cluster; "local" to start Ray on this
            machine, without telemetry and dashboard, listening on 127.0.0.1 alone and closed to other users (see
            `private_session`).

    Raises:
        ClusterError: Ray is not installed or does not respond, or other users can read this user's token.
    """
    place = host_and_port(address)
    here = address == LOCAL
    for name, value in (_ENVIRONMENT | (_ENVIRONMENT_HERE if here else {})).items():
        os.environ.setdefault(name, value)
    with needs_extra("ray", ClusterError):
        import ray
        import ray.data
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"ray\.")  # about the settings above
    if ray.is_initialized():
        yield
    elif here:
        private: Any = ray._private
        private.ray_constants.ENABLE_RAY_CLUSTER = False  # if Ray was imported before the environment was set
        with private_session() as folder:
            options = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE, "_temp_dir": str(folder)}
            with _joined(address, "Ray does not start on this machine (--ray local)", options):
                yield
    else:
        check_token_file()
        if place is not None:
            _check_answers(address, *place)
        with _joined(address, f"no Ray responds at {address}", {}):
            yield


@contextmanager
def _joined(address: str, failure: str, options: dict) -> Iterator[None]:
    import ray

    try:
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise ClusterError(f"{failure}: {sentence_of(error).rstrip('.')}") from None
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str, host: str, port: int) -> None:
    """Raise ClusterError if no Ray responds; Ray itself would try for minutes."""
    try:
        with socket.create_connection((host, port), _TIMEOUT) as connection:
            connection.sendall(_HELLO)
            if connection.recv(9)[3:4] != b"\4":
                raise OSError("another program responds")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(
            f"no Ray responds at {address} ({reason}): start it there with `ray start --head`, or use --ray local"
        ) from None
