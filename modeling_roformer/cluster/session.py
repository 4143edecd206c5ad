"""A Ray to work on: one that runs already, or one on this machine for as long as a command takes."""

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..output.console import sentence_of
from ..output.extras import needs_extra
from .address import LOCAL, host_and_port
from .errors import ClusterError
from .private_session import check_token_file, private_session

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
            here, without telemetry and dashboard, which listens on 127.0.0.1 alone, and into which no other user of this
            machine gets (see `private_session`).

    Raises:
        ClusterError: Ray is not installed, nobody answers, or other users can read this user's token.
    """
    place = host_and_port(address)
    here = address == LOCAL
    for name, value in (_ENVIRONMENT | (_ENVIRONMENT_HERE if here else {})).items():
        os.environ.setdefault(name, value)
    with needs_extra("ray", ClusterError):
        import ray
        import ray.data
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"ray\.")  # about settings, which are ours
    if ray.is_initialized():
        yield
    elif here:
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False  # in case that Ray was imported before it could read this
        with private_session() as folder:
            options = {"include_dashboard": False, "object_store_memory": _OBJECT_STORE, "_temp_dir": str(folder)}
            with _joined(address, "Ray does not start on this machine", options):
                yield
    else:
        check_token_file()
        if place is not None:
            _check_answers(address, *place)
        with _joined(address, f"no Ray answers at {address}", {}):
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
    """Before Ray asks, which tries for minutes."""
    try:
        with socket.create_connection((host, port), _PATIENCE) as connection:
            connection.sendall(_HELLO)
            if connection.recv(9)[3:4] != b"\4":
                raise OSError("what listens there is no Ray")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterError(
            f"no Ray answers at {address} ({reason}): `ray start --head` starts one there, and --ray local one on this machine"
        ) from None
