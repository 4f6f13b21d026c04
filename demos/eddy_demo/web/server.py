"""The server of the page, on this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn

from eddy_demo.errors import DemoError
from eddy_demo.web.app import create_app
from eddy_demo.web.http.security import SecurityMiddleware
from eddy_demo.web.library_reader import LibraryOptions
from eddy_demo.web.limits import Limits
from eddy_demo.web.uploads.upload_queue import UploadQueue
from openai_eddy.limits import Limits as ConnectionLimits
from openai_eddy.uvicorn_server import limited_protocol

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


def server_config(app: SecurityMiddleware, **options: Any) -> uvicorn.Config:
    """Return uvicorn's configuration with limits on connections and slow clients; `options` are further ones of it."""
    protocol = limited_protocol(ConnectionLimits())
    return uvicorn.Config(app, http=protocol, access_log=False, server_header=False, ws="none", **options)


def serve(
    options: LibraryOptions,
    listener: socket.socket,
    hosts: Iterable[str] = (),
    limits: Limits | None = None,
    started: Callable[[], None] = lambda: None,
    access_token: str | None = None,
) -> None:
    """Serve a library until the process is asked to stop; call `started` once the server accepts requests."""
    app = create_app(options, limits, hosts, lambda: server.should_exit, access_token)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

    server = Server(server_config(app, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_SECONDS))
    with UploadQueue(options.folder).lock():
        server.run([listener])
