"""State that the routes share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.requests import Request

from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.follower import Follower
from eddy_demo.web.http.concurrency import BoundedWork, ChangeSignal
from eddy_demo.web.library_reader import LibraryReader
from eddy_demo.web.limits import Limits

_KEY = re.compile(r"[0-9a-f]{16}")


@dataclass
class ServerState:
    """State of one running server."""

    limits: Limits
    changes: ChangeSignal  # of the library or the queue
    reader: LibraryReader
    follower: Follower
    searches: BoundedWork  # with the model and the database
    drawing: BoundedWork  # of pages
    answers: BoundedWork  # that the model writes
    is_local: bool  # whether this machine alone can reach the page, which may then follow its folders
    listeners: int = 0  # open pages that receive progress events


def server_state(request: Request) -> ServerState:
    """Return the state of the server that handles a request."""
    state: ServerState = request.app.state.eddy
    return state


def checked_key(key: str) -> str:
    """Check a document's id from an address."""
    if not _KEY.fullmatch(key):
        raise RequestRefused(404, "there is no such document")
    return key
