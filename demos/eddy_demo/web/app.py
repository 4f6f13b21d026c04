"""The web application of one library."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from chroma_eddy import StorageError
from eddy_demo.errors import DemoError
from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.follower import Follower
from eddy_demo.web.http.concurrency import BoundedWork, ChangeSignal
from eddy_demo.web.http.security import SecurityMiddleware
from eddy_demo.web.library_reader import LibraryOptions, LibraryReader
from eddy_demo.web.limits import Limits
from eddy_demo.web.routes.api import api
from eddy_demo.web.routes.pages import pages, render
from eddy_demo.web.routes.state import ServerState
from eddy_embed.errors import EddyError
from eddy_embed.integrations.http_guard import LOOPBACK

_RETRY_SECONDS = "2"
"""Time after which a client that was refused for others' requests may ask again."""
_STATIC = Path(__file__).parent / "static"


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
        changes.start()
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
        drawing=BoundedWork(1, limits.waiting_pages, "pages"),
        answers=BoundedWork(1, limits.questions, "answers to be written"),
    )
    app.include_router(api)
    app.include_router(pages)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
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
        missing = ", ".join(str(problem["loc"][-1]) for problem in error.errors())
        status, message = 400, f"the address lacks something: {missing}"
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
