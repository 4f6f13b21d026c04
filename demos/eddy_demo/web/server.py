"""The web application of one library, and its server on this machine."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from chroma_eddy import StorageError
from eddy_demo.errors import DemoError
from eddy_demo.web.api import api
from eddy_demo.web.follower import Follower
from eddy_demo.web.http import BoundedWork, ChangeSignal, Limits, SecurityMiddleware
from eddy_demo.web.library_reader import LibraryOptions, LibraryReader
from eddy_demo.web.pages import ServerState, pages, render
from eddy_demo.web.uploads import Uploads
from eddy_embed.errors import EddyError
from eddy_embed.integrations.http_guard import LOOPBACK, RequestRefused

_RETRY_SECONDS = "2"
"""Time after which a client that was refused for others' requests may ask again."""
_CONNECTIONS = 1024
"""Open connections from which on each request is refused."""
_BACKLOG = 2048
"""Connections that wait until they are accepted, as many as uvicorn has by default."""
_SHUTDOWN_SECONDS = 5
"""Time that open connections have to end."""
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for all interfaces, and the one of them that the user opens."""


def create_app(
    options: LibraryOptions,
    limits: Limits | None = None,
    hosts: Iterable[str] = (),
    access_token: str | None = None,
    changes: ChangeSignal | None = None,
) -> SecurityMiddleware:
    """Create the application, whose streams end with the signal of `changes`.

    Everybody who reaches it must know the access token, if there is one. Folders are watched only without a token and
    without further `hosts`, where nobody but the users of this machine can name them.
    """
    limits, changes, hosts = limits or Limits(), changes or ChangeSignal(), set(hosts)
    reader = LibraryReader(options, changes)
    follower = Follower(reader, limits, changes)
    is_local = access_token is None and LOOPBACK.issuperset(hosts)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        follower.start(is_local)
        yield
        follower.stop()

    # Without FastAPI's pages of documentation, which load scripts from other servers.
    app = FastAPI(title="Eddy", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.eddy = ServerState(
        limits=limits,
        changes=changes,
        reader=reader,
        follower=follower,
        is_local=is_local,
        searches=BoundedWork(limits.concurrent_searches, limits.questions, "questions"),
        drawing=BoundedWork(1, limits.questions, "pages"),
        answers=BoundedWork(1, limits.questions, "answers to be written"),
    )
    app.include_router(api)
    app.include_router(pages)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    for kind in (RequestRefused, DemoError, EddyError, StorageError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _error_response)
    return SecurityMiddleware(app, limits, hosts, access_token)


def _error_response(request: Request, error: Exception) -> Response:
    """Return an error as JSON for a script, or as a page."""
    status = getattr(error, "status", None) or getattr(error, "status_code", None) or 400
    message = str(error)
    if isinstance(error, StorageError):
        status = 500
    elif isinstance(error, RequestValidationError):
        status, message = 400, "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors())
    elif isinstance(error, HTTPException):
        message = "there is no such page" if status == 404 else str(error.detail)
    elif not isinstance(error, (DemoError, EddyError, RequestRefused)):
        # Starlette raises it again after this response, and the middleware logs it.
        status, message = 500, f"the server failed ({type(error).__name__}); what it printed says where"
    if request.url.path.startswith("/api/"):
        response: Response = JSONResponse({"error": message}, status)
    else:
        response = render(request, "error.html", status, message=message)
    if status == 503:
        response.headers["retry-after"] = _RETRY_SECONDS
    return response


def bind(host: str, port: int) -> socket.socket:
    """Listen on a socket; uvicorn's own `bind_socket` would exit the process on failure."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
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

    def __init__(self, app: SecurityMiddleware, changes: ChangeSignal, **options: Any) -> None:
        """Serve an application with this signal, by further options of uvicorn's configuration."""
        options |= {"http": "h11", "ws": "none", "limit_concurrency": _CONNECTIONS}
        super().__init__(uvicorn.Config(app, access_log=False, server_header=False, **options))
        self._changes = changes

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let open requests end, which a stream of progress would never do by itself."""
        self._changes.ended = True
        await super().shutdown(sockets)


def serve(
    options: LibraryOptions,
    listener: socket.socket,
    hosts: Iterable[str] = (),
    started: Callable[[], None] = lambda: None,
    access_token: str | None = None,
) -> None:
    """Serve a library until the process is asked to stop; `started` is called when its address can be opened."""
    changes = ChangeSignal()
    app = create_app(options, hosts=hosts, access_token=access_token, changes=changes)
    server = PageServer(app, changes, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_SECONDS)
    with Uploads(options.folder).serve():
        started()
        server.run([listener])
