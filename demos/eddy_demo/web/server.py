"""The server of the page, on this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn

from eddy_demo.errors import DemoError
from eddy_demo.web.app import create_app
from eddy_demo.web.http.concurrency import ChangeSignal
from eddy_demo.web.http.security import SecurityMiddleware
from eddy_demo.web.library_reader import LibraryOptions
from eddy_demo.web.uploads import Uploads

_CONNECTIONS = 1024
"""Open connections from which on each request is refused."""
_SHUTDOWN_SECONDS = 5
"""Time that open connections have to end."""
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for all interfaces, and the one of them that the user opens."""


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket; uvicorn's own `bind_socket` would exit the process on failure."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise DemoError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another with --port"
        ) from None
    return listener


def addresses(host: str, listener: socket.socket) -> tuple[str, set[str]]:
    """Return the URL that the user opens, and the host names that the server accepts."""
    bound, port = listener.getsockname()[:2]
    own = _WILDCARDS.get(bound, bound)
    shown = f"[{own}]" if ":" in own else own
    return f"http://{shown}:{port}/", {host, bound} - _WILDCARDS.keys()


class PageServer(uvicorn.Server):
    """Uvicorn with a limit on connections; before it stops, it ends the streams of the pages."""

    def __init__(
        self, app: SecurityMiddleware, changes: ChangeSignal, started: Callable[[], None] = lambda: None, **options: Any
    ) -> None:
        """Serve an application with this signal; `started` is called once requests are accepted.

        `options` are further ones of uvicorn's configuration.
        """
        options |= {"http": "h11", "ws": "none", "limit_concurrency": _CONNECTIONS}
        super().__init__(uvicorn.Config(app, access_log=False, server_header=False, **options))
        self._changes, self._on_start = changes, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept requests."""
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let open requests end, which a stream of progress would never do by itself."""
        self._changes.end()
        await super().shutdown(sockets)


def serve(
    options: LibraryOptions,
    listener: socket.socket,
    hosts: Iterable[str] = (),
    started: Callable[[], None] = lambda: None,
    access_token: str | None = None,
) -> None:
    """Serve a library until the process is asked to stop; call `started` once the server accepts requests."""
    changes = ChangeSignal()
    app = create_app(options, hosts=hosts, access_token=access_token, changes=changes)
    server = PageServer(app, changes, started, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_SECONDS)
    with Uploads(options.folder).serve():
        server.run([listener])
