"""Addresses of a Ray, as `--ray` takes them."""

import re

from .errors import ClusterError

LOCAL = "local"  # a Ray on this machine, for as long as a command takes
AUTO = "auto"  # the Ray of which this machine is a part
_HOST_AND_PORT = re.compile(r"(?P<host>[\w.-]+|\[[\da-fA-F:]+\]):(?P<port>\d+)")


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return where a cluster's head listens, or None for `LOCAL` and `AUTO`.

    Raises:
        ClusterError: it is no address.

    >>> host_and_port("head:6379")
    ('head', 6379)
    """
    if address in (LOCAL, AUTO):
        return None
    if address.startswith("ray://"):
        raise ClusterError(f"{address} is Ray Client's: give the address of the cluster's head itself, HOST:PORT")
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise ClusterError(
            f"{address!r} is no address of a Ray: give HOST:PORT of a cluster (6379 is Ray's usual port), auto for the one of "
            "which this machine is a part, or local to start one here"
        )
    return found["host"].strip("[]"), int(found["port"])
