"""Addresses of a Ray cluster, as `--ray` takes them."""

import re

LOCAL = "local"  # a Ray on this machine, started for one command
AUTO = "auto"  # the running Ray of this machine
_HOST_AND_PORT = re.compile(r"(?P<host>[\w.-]+|\[[\da-fA-F:]+\]):(?P<port>\d+)")


class ClusterError(ValueError):
    """A failure of Ray; the message has the reason and the remedy."""


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return the host and port of a cluster's head, or None for `LOCAL` and `AUTO`.

    Raises:
        ClusterError: the address is not one of these.

    >>> host_and_port("head:6379")
    ('head', 6379)
    """
    if address in (LOCAL, AUTO):
        return None
    if address.startswith("ray://"):
        raise ClusterError(
            f"{address} is an address of Ray Client; expected the address of the cluster's head, HOST:PORT"
        )
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise ClusterError(
            f"{address!r} is not an address of Ray; expected HOST:PORT of a cluster (by default port 6379), auto for "
            "this machine's cluster, or local to start Ray on this machine"
        )
    return found["host"].strip("[]"), int(found["port"])
