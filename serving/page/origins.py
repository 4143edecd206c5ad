"""By which names the page is asked for, and from which pages: what a foreign page in a visitor's browser cannot pretend.

A page of another site can make a browser send requests to this one, even where only this machine reaches it: the header
`Origin` then names that site. Or it can give its own name this machine's address (DNS rebinding): then `Host` does.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable

_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[\w.-]+))(?::(?P<port>\d{1,5}))?", re.ASCII)
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_OTHER_NAME = (
    "this page does not answer to that name: ask for it by its address, or start it with --proxy, with which it answers to "
    "any name"
)

Headers = Iterable[tuple[bytes, bytes]]


class Origins:
    """The names that the page answers to.

    Args:
        host: the address that it listens on. On 127.0.0.1 it answers to this machine's own names alone, elsewhere to any
            address in digits, to `host`, and to this machine's name in its network.
        proxy: a web server stands before the page. It then answers to every name, and believes what `X-Forwarded-Host` and
            the like say; requests of other sites are refused all the same.
    """

    def __init__(self, host: str, proxy: bool = False):
        self.proxy = proxy
        self._is_local = _is_loopback(host.lower())
        self._names = {host.lower()}
        if not self._is_local:
            name = socket.gethostname().lower()
            self._names |= {name, f"{name.partition('.')[0]}.local", socket.getfqdn(name).lower()}

    def refusal(self, headers: Headers) -> tuple[int, str] | None:
        """The status and the sentence for a request that is refused; None for one that is not."""
        hosts = [_text(value) for name, value in headers if name == b"host"]
        origins = [_text(value) for name, value in headers if name == b"origin"]
        host = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if host is None or not self._answers_to(host["ipv6"] or host["name"].removesuffix(".")):
            return 400, _OTHER_NAME
        if self.proxy:
            # Of several proxies, each adds its own behind a comma; the first is what the visitor asked for.
            hosts += [_text(value).partition(",")[0].strip() for name, value in headers if name == b"x-forwarded-host"]
            if not all(map(_HOST.fullmatch, hosts)):
                return 400, "X-Forwarded-Host is not a name"
        if any(not _is_of(origin, hosts) for origin in origins):
            return 403, "this page takes no requests from other sites; a web server before it has to hand on Host"
        return None

    def believed(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The headers without those that only a web server before the page may send, if there is none."""
        return [
            (name, value)
            for name, value in headers
            if self.proxy or not (name == b"forwarded" or name.startswith(b"x-forwarded-"))
        ]

    def _answers_to(self, name: str) -> bool:
        if self.proxy or name in self._names or _is_loopback(name):
            return True
        return not self._is_local and _address(name) is not None  # an address is nobody else's name


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip().lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _is_of(origin: str, hosts: list[str]) -> bool:
    """Whether an origin, `http://name:port`, is that of one of the hosts, `name:port`."""
    scheme, _, host = origin.partition("://")
    port = f":{_DEFAULT_PORTS.get(scheme)}"
    return scheme in _DEFAULT_PORTS and host.removesuffix(port) in [name.removesuffix(port) for name in hosts]
