"""A file on its way into the library, and how far it is."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from eddy_demo.display_text import printable
from eddy_demo.errors import DemoError
from eddy_demo.web.uploads.upload_queue import Ticket
from eddy_embed.errors import EddyError

if TYPE_CHECKING:
    from chroma_eddy import Entry
    from eddy_demo.readers.documents import Document
    from eddy_demo.web.uploads.library_writer import Writer

STATES = ("waiting", "reading", "embedding", "writing", "done", "known", "failed")
UNDER_WAY = ("reading", "embedding", "writing")
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
        content: What was read, until it is written.
    """

    ticket: Ticket
    state: str = "waiting"
    message: str = ""
    done: float = 0.0
    left: float | None = None
    document: str = ""
    notes: tuple[str, ...] = ()
    content: Document | None = None

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

    def known(self, entry: Entry) -> Job:
        """The library has it already."""
        name = str(entry.metadata.get("name", entry.id))
        self.state, self.document, self.done, self.left, self.content = "known", entry.id, 1.0, None, None
        also = "" if name == self.ticket.name else f" as {name}"
        self.message = f"already in the library{also}"
        return self


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

    def __init__(self, writer: Writer, ready: Sequence[Job]) -> None:
        """Begin.

        Args:
            writer: Told of it.
            ready: The files, in the order in which they are written.
        """
        self._writer, self._ready = writer, ready
        self._ends = list(accumulate(len(job.content.text) for job in ready if job.content is not None))
        self._began = time.monotonic()

    def __call__(self, characters: float, written: int) -> None:
        """So many characters are embedded, and so many files written."""
        if written:
            self._writer.written(self._ready[:written])  # also where the rest is cancelled
        self._writer.check()
        rate = characters / max(time.monotonic() - self._began, 1e-3)
        start = self._ends[written - 1] if written else 0
        for job, end in zip(self._ready[written:], self._ends[written:], strict=True):
            job.done = min(max((characters - start) / max(end - start, 1), 0.0), 1.0)
            job.state = "writing" if job.done == 1.0 else "embedding"
            job.left = max(end - characters, 0) / rate if rate else None
            start = end
        self._writer.jobs.tell()
