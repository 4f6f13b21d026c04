"""Blocks every connection that leaves this machine, in the test process and in the Python processes that it starts.

`tests/conftest.py` imports this file and puts its folder on PYTHONPATH, where Python runs it as `sitecustomize`.
An audit hook sees every socket call of the interpreter, those of C extensions' sockets made through Python included,
and cannot be removed or patched away by the code under test.
"""

from __future__ import annotations

import ipaddress
import sys


class NetworkBlocked(OSError):
    """A test tried to reach another machine."""


def _is_local(host: object) -> bool:
    if host is None or host in ("", b"", "localhost", b"localhost"):
        return True
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        address = ipaddress.ip_address(name.split("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified  # a server's way to say: of this machine


def _host(event: str, args: tuple[object, ...]) -> object:
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        return args[0]
    address = args[1]  # of connect, sendto and sendmsg; a path for AF_UNIX, None on a connected socket
    return address[0] if isinstance(address, tuple) else None


def _guard(event: str, args: tuple[object, ...]) -> None:
    if event in _WATCHED and not _is_local(host := _host(event, args)):
        raise NetworkBlocked(f"{event} to {host!r} is blocked: tests run without a network")


_WATCHED = frozenset(
    ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname")
)
sys.addaudithook(_guard)
