"""A file on its way into the library, and how far it is."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddy_demo.errors import DemoError
from eddy_demo.show import printable
from eddy_demo.web.tickets import Ticket
from eddy_embed.errors import EddyError

if TYPE_CHECKING:
    from chroma_eddy import Entry
    from eddy_demo.web.jobs import Jobs

STATES = ("waiting", "reading", "embedding", "writing", "done", "known", "failed")
FINISHED = ("done", "known")


@dataclass
class Job:
    """A file on its way into the library.

    Attributes:
        ticket: The file.
        state: One of `STATES`; known: the library had it already.
        message: For the user.
        done: Share of its text that is embedded.
        left: Seconds until it is written, None where that is not known.
        document: Id of its document, once it has one.
        notes: What the reader left out.
    """

    ticket: Ticket
    state: str = "waiting"
    message: str = ""
    done: float = 0.0
    left: float | None = None
    document: str = ""
    notes: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """For the page."""
        return {
            "id": self.ticket.id,
            "name": self.ticket.name,
            "size": self.ticket.size,
            "state": self.state,
            "message": printable(self.message),
            "done": round(self.done, 4),
            "left": None if self.left is None else round(self.left, 1),
            "document": self.document,
            "notes": [printable(note) for note in self.notes],
        }


def known(job: Job, entry: Entry) -> Job:
    """The job of a file that the library has already."""
    name = str(entry.metadata.get("name", entry.id))
    job.state, job.document, job.done, job.left = "known", entry.id, 1.0, None
    job.message = "already in the library" if name == job.ticket.name else f"already in the library as {name}"
    return job


def told(error: Exception) -> str:
    """What the page says of an error; one that nobody foresaw is logged whole."""
    if isinstance(error, (DemoError, EddyError, OSError)):
        return str(error)
    if isinstance(error, MemoryError):
        return str(error) or "out of memory"
    logging.getLogger(__name__).error("the work on the library failed", exc_info=error)
    return f"{type(error).__name__}: {error}"


class Watch:
    """Turns the progress of an ingestion into that of its files."""

    def __init__(self, jobs: Jobs, ready: Sequence[Job], ends: Mapping[str, int]) -> None:
        """Begin.

        Args:
            jobs: Told of it.
            ready: The files, in the order in which they are written.
            ends: Characters up to the end of each, by id.
        """
        self._jobs, self._ready, self._ends = jobs, ready, ends
        self._began = time.monotonic()

    def __call__(self, characters: float, written: int) -> None:
        """So many characters are embedded, and so many files written."""
        self._jobs.check()
        rate = characters / max(time.monotonic() - self._began, 1e-3)
        start = 0
        if written:
            self._jobs.opened()  # before a file is called finished
        for at, job in enumerate(self._ready):
            end = self._ends[job.ticket.id]
            if at < written:
                self._jobs.finish(job)
            else:
                job.done = min(max((characters - start) / max(end - start, 1), 0.0), 1.0)
                job.state = "writing" if job.done == 1.0 else "embedding"
                job.left = max(end - characters, 0) / rate if rate else None
            start = end
        self._jobs.tell()
