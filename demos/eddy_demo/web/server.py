"""The server of the page, on this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import uvicorn

from eddy_demo.errors import DemoError
from eddy_demo.web.app import create_app
from eddy_demo.web.uploads.upload_queue import Tickets

if TYPE_CHECKING:
    from eddy_demo.web.library_reader import Choice
    from eddy_demo.web.limits import Limits

_GRACE = 5
"""Seconds that open connections have to end."""
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for all of this machine's, and which of them its user takes."""


class PortTaken(DemoError):
    """Something else listens there."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        PortTaken: The address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another with --port"
        ) from None
    return listener


def addresses(host: str, listener: socket.socket) -> tuple[str, set[str]]:
    """Where its user finds a server, and the names under which others may ask for it.

    Args:
        host: As it was asked for.
        listener: As `bind` gave it.
    """
    bound, port = listener.getsockname()[:2]
    own = _EVERYWHERE.get(bound, bound)
    shown = f"[{own}]" if ":" in own else own
    return f"http://{shown}:{port}/", {host, bound} - _EVERYWHERE.keys()


def serve(
    choice: Choice,
    listener: socket.socket,
    hosts: Iterable[str] = (),
    limits: Limits | None = None,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve a library until the process is asked to end.

    Args:
        choice: Which library, with which model.
        listener: As `bind` gave it.
        hosts: Further names to answer to.
        limits: What it takes.
        started: Called when it answers.

    Raises:
        ServedAlready: Another process serves it.
        LibraryMismatch: The folder holds something else.
    """
    app = create_app(choice, limits, hosts, lambda: server.should_exit)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE, server_header=False, ws="none"
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

    server = Server(config)
    with Tickets(choice.folder).held():
        server.run([listener])
