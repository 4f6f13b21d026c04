"""State that the routes share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request

from eddy_demo.web.answers.explain import MethodExplorer
from eddy_demo.web.answers.history import QuestionHistory
from eddy_demo.web.answers.samples import SampleQuestions
from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.http.concurrency import FairLock, WorkerPool
from eddy_demo.web.library_reader import LibraryReader
from eddy_demo.web.limits import Limits
from eddy_demo.web.uploads.job_queue import JobQueue
from eddy_demo.web.uploads.library_writer import LibraryWriter

_KEY = re.compile(r"[0-9a-f]{16}")


@dataclass
class ServerState:
    """State of one running server."""

    limits: Limits
    reader: LibraryReader
    jobs: JobQueue
    writer: LibraryWriter
    workers: WorkerPool  # for the model and the database
    page_workers: WorkerPool  # for drawing pages
    generation_lock: FairLock  # held by the answer that the model writes
    history: QuestionHistory
    samples: SampleQuestions
    stopping: Callable[[], bool]  # whether the server is about to stop
    listeners: int = 0  # open pages that receive progress events
    explorer: MethodExplorer = field(default_factory=MethodExplorer)


def server_state(request: Request) -> ServerState:
    """Return the state of the server that handles a request."""
    state: ServerState = request.app.state.eddy
    return state


def checked_key(key: str) -> str:
    """Check a document's id from an address."""
    if not _KEY.fullmatch(key):
        raise RequestRefused(404, "there is no such document")
    return key
