"""What the routes share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from eddy_demo.web.answers.explain import Methods
from eddy_demo.web.http.events import Threads, Turn
from eddy_demo.web.http.security import Refused
from eddy_demo.web.library_reader import Shelf
from eddy_demo.web.limits import Limits
from eddy_demo.web.uploads.job_queue import Jobs
from eddy_demo.web.uploads.library_writer import Writer

_KEY = re.compile(r"[0-9a-f]{16}")


@dataclass
class State:
    """One running server.

    Attributes:
        limits: What it takes.
        shelf: The library, to be read.
        jobs: What is to be written.
        writer: What writes it.
        threads: For questions.
        turn: Of the answers that the model writes.
        stopping: Whether the server is about to end.
        listeners: Pages that are told of progress now.
        methods: Further methods, and what is drawn of the library.
    """

    limits: Limits
    shelf: Shelf
    jobs: Jobs
    writer: Writer
    threads: Threads
    turn: Turn
    stopping: Callable[[], bool]
    listeners: int = 0
    methods: Methods = field(default_factory=Methods)


def checked_key(key: str) -> str:
    """A document's id as it came in an address.

    Raises:
        Refused: It is none.
    """
    if not _KEY.fullmatch(key):
        raise Refused(404, "there is no such document")
    return key
