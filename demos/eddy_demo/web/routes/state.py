"""State that the routes share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request

from eddy_demo.web.answers.explain import MethodExplorer
from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.http.concurrency import FairLock, WorkerPool
from eddy_demo.web.library_reader import LibraryReader
from eddy_demo.web.limits import Limits
from eddy_demo.web.uploads.job_queue import JobQueue
from eddy_demo.web.uploads.library_writer import LibraryWriter

_KEY = re.compile(r"[0-9a-f]{16}")


@dataclass
class ServerState:
    """State of one running server.

    Attributes:
        limits: Limits of requests.
        reader: Read access to the library.
        jobs: Work for the writing thread.
        writer: The writing thread.
        workers: Threads that answer questions.
        generation_lock: Held by the answer that the model writes.
        stopping: Returns whether the server is about to stop.
        listeners: Number of open pages that receive progress events.
        explorer: Embedders of other methods, and analyses of the library.
    """

    limits: Limits
    reader: LibraryReader
    jobs: JobQueue
    writer: LibraryWriter
    workers: WorkerPool
    generation_lock: FairLock
    stopping: Callable[[], bool]
    listeners: int = 0
    explorer: MethodExplorer = field(default_factory=MethodExplorer)


def server_state(request: Request) -> ServerState:
    """Return the state of the server that handles a request."""
    state: ServerState = request.app.state.eddy
    return state


def checked_key(key: str) -> str:
    """Check a document's id from an address.

    Raises:
        RequestRefused: It is no id.
    """
    if not _KEY.fullmatch(key):
        raise RequestRefused(404, "there is no such document")
    return key
