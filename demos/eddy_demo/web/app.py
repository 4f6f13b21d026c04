"""The application: pages, what their scripts call, and the guard in front of both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from chroma_eddy import StorageError
from eddy_demo.errors import DemoError
from eddy_demo.web.http.events import Threads, Turn
from eddy_demo.web.http.security import Guard, Refused
from eddy_demo.web.library_reader import Choice, Shelf
from eddy_demo.web.limits import Limits
from eddy_demo.web.routes.api import api
from eddy_demo.web.routes.pages import page_error, pages
from eddy_demo.web.routes.state import State
from eddy_demo.web.uploads.job_queue import Jobs
from eddy_demo.web.uploads.library_writer import Writer
from eddy_embed.errors import EddyError

_STATIC = Path(__file__).parent / "static"


def create_app(
    choice: Choice,
    limits: Limits | None = None,
    hosts: Iterable[str] = (),
    stopping: Callable[[], bool] = lambda: False,
) -> Guard:
    """The web application of one library.

    Args:
        choice: Which library, with which model.
        limits: What it takes.
        hosts: Names that it answers to beside those of the loopback interface.
        stopping: Whether the server is about to end, so that open streams do.
    """
    limits = limits or Limits()
    shelf, jobs = Shelf(choice), Jobs(choice.folder, limits.waiting)
    threads, turn = Threads(limits.at_once, limits.askers), Turn(limits.askers)
    state = State(limits, shelf, jobs, Writer(jobs, shelf, limits), threads, turn, stopping)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        state.writer.start()
        yield
        state.writer.stop()

    # Its pages of documentation load scripts from elsewhere.
    app = FastAPI(title="Eddy", docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    app.state.eddy = state
    app.include_router(api)
    app.include_router(pages)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.add_exception_handler(Refused, _failed)
    for kind in (DemoError, EddyError, StorageError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _failed)
    return Guard(app, limits, hosts)


def _failed(request: Request, error: Exception) -> Response:
    """An error in plain words: as data to a script, as a page to a reader."""
    status = getattr(error, "status", None) or getattr(error, "status_code", None) or 400
    message = str(error)
    if isinstance(error, StorageError):
        status = 500
    elif not isinstance(error, (DemoError, EddyError, HTTPException, RequestValidationError, Refused)):
        # Nobody foresaw it; it is raised on, and the guard logs it whole.
        status, message = 500, f"the server failed ({type(error).__name__}); what it printed says where"
    if isinstance(error, RequestValidationError):
        status, message = 400, "the address lacks something: " + ", ".join(_wrong(error))
    elif isinstance(error, HTTPException):
        message = "there is no such page" if status == 404 else str(error.detail)
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": message}, status)
    return page_error(request, status, message)


def _wrong(error: RequestValidationError) -> list[str]:
    return [str(each["loc"][-1]) for each in error.errors()]
