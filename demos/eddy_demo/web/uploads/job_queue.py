"""What is to be written: files on their way into the library, documents on their way out, and all of it anew."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eddy_demo.web.http.security import Refused
from eddy_demo.web.uploads.job import FINISHED, UNDER_WAY, Job
from eddy_demo.web.uploads.upload_queue import Ticket, Tickets

if TYPE_CHECKING:
    from chroma_eddy import Entry

_KEPT = 200
"""Finished files that are still listed."""


class Jobs:
    """Any thread may ask for something here; only the thread of `Writer` carries it out, and says so."""

    def __init__(self, library: Path, most: int) -> None:
        """Take nothing yet.

        Args:
            library: Its folder.
            most: Files that are kept until they are written.
        """
        self.tickets = Tickets(library)
        self.version = 0
        self.stopping = False
        self._most = most
        self._jobs: dict[str, Job] = {}
        self._receiving = 0
        self._removals: set[str] = set()
        self._cancelled: set[str] = set()
        self._rebuild = False
        self._changed = threading.Condition(threading.RLock())

    # --- For the page

    def listed(self) -> list[dict[str, Any]]:
        """The files, as the page shows them."""
        with self._changed:
            return [job.as_data() for job in self._jobs.values()]

    @contextmanager
    def place(self) -> Iterator[None]:
        """Keep room for a file while it is received.

        Raises:
            Refused: There is none.
        """
        with self._changed:
            states = [job.state for job in self._jobs.values() if job.state not in FINISHED]
            if len(states) + self._receiving >= self._most:
                failed = states.count("failed")
                what = f"are waiting already, {failed} of which failed" if failed else "are waiting already"
                more = ", or put away those that failed" if failed else ""
                raise Refused(503, f"{self._most} files {what}; wait until some are written{more}")
            self._receiving += 1
        try:
            yield
        finally:
            with self._changed:
                self._receiving -= 1

    def take(self, part: Path, ticket: Ticket, entry: Entry | None) -> str:
        """Keep a file that was received whole, unless its content is on its way already, or in the library.

        Args:
            part: Where it was received; moved or deleted.
            ticket: Of it.
            entry: What the library has of it.

        Returns:
            Its state.
        """
        with self._changed:
            job = self._jobs.get(ticket.id)
            if job is not None and job.state not in FINISHED:
                part.unlink(missing_ok=True)
                self._cancelled.discard(ticket.id)
                self.retry(ticket.id)
                return "waiting"
            if entry is not None and entry.id not in self._removals:
                part.unlink(missing_ok=True)
                self._put(Job(ticket).known(entry))
                return "known"
            self.tickets.keep(part, ticket)
            self._put(Job(ticket))
            return "waiting"

    def cancel(self, id_: str) -> bool:
        """Take a file back that is not written yet, or put away one that failed or is finished."""
        with self._changed:
            job = self._jobs.get(id_)
            if job is None:
                return False
            if job.state in UNDER_WAY:
                self._cancelled.add(id_)
            else:
                self._drop(job)
            return True

    def retry(self, id_: str) -> bool:
        """Try a file again that failed."""
        with self._changed:
            job = self._jobs.get(id_)
            if job is None or job.state != "failed":
                return False
            job.ticket = replace(job.ticket, error="")
            self.tickets.write(job.ticket)
            self.set(job, state="waiting", message="")
            return True

    def clear(self, failed: bool = False) -> None:
        """Put away what is finished, or what failed."""
        states = ("failed",) if failed else FINISHED
        with self._changed:
            for job in [job for job in self._jobs.values() if job.state in states]:
                self._drop(job)

    def remove(self, key: str) -> None:
        """Take a document out of the library."""
        with self._changed:
            self._removals.add(key)
            self.tell()

    def removing(self) -> set[str]:
        """Documents that are about to go."""
        with self._changed:
            return set(self._removals)

    def rebuild(self) -> None:
        """Make the library anew with the method that measured best for its model."""
        with self._changed:
            self._rebuild = True
            self.tell()

    def tell(self) -> None:
        """Wake whoever waits for a change."""
        with self._changed:
            self.version += 1
            self._changed.notify_all()

    # --- For the thread that writes

    def start(self) -> None:
        """Take up what an earlier server left."""
        for ticket in self.tickets.stored():
            self._jobs[ticket.id] = Job(ticket, "failed" if ticket.error else "waiting", ticket.error)

    def stop(self) -> None:
        """End what is under way; what is not written stays in the folder for the next server."""
        with self._changed:
            self.stopping = True
            self.tell()

    def wait(self, seconds: float, always: bool = False) -> bool:
        """Wait until there is something to do.

        Args:
            seconds: At most.
            always: Wait for any change at all.

        Returns:
            Whether there is.
        """
        with self._changed:
            if not self.stopping and (always or not self._pending()):
                self._changed.wait(seconds)
            return self._pending()

    def _pending(self) -> bool:
        return not self.stopping and bool(self._removals or self._rebuild or self.waiting())

    def waiting(self, most: int | None = None) -> list[Job]:
        """The first files that wait, or all."""
        with self._changed:
            return [job for job in self._jobs.values() if job.state == "waiting"][:most]

    @property
    def wanted_anew(self) -> bool:
        """Whether the library is to be made anew."""
        return self._rebuild

    def rebuilt(self) -> None:
        """It was made anew, or cannot be."""
        self._rebuild = False

    def removed(self, keys: set[str]) -> None:
        """Documents are out of the library."""
        with self._changed:
            self._removals -= keys

    def set(self, job: Job, **values: Any) -> None:
        """Change what is told of a file."""
        with self._changed:
            for name, value in values.items():
                setattr(job, name, value)
            self.tell()

    def finish(self, job: Job) -> None:
        """A file is in the library; one that was cancelled too late leaves it again."""
        with self._changed:
            if job.state in FINISHED:
                return
            self.tickets.forget(job.ticket.id)
            self.set(job, state="done", done=1.0, left=None, content=None)
            if job.ticket.id in self._cancelled:
                self._removals.add(job.document)
                self._drop(job)

    def know(self, job: Job, entry: Entry) -> None:
        """The library has the text of a file already."""
        with self._changed:
            if job.ticket.id in self._cancelled:
                self._drop(job)
                return
            self.tickets.forget(job.ticket.id)
            job.known(entry)
            self.tell()

    def fail(self, job: Job, error: str) -> None:
        """A file cannot be written; one that was cancelled is dropped, like any other."""
        with self._changed:
            if job.ticket.id in self._cancelled:
                self._drop(job)
                return
            ticket = self.tickets.fail(job.ticket, error)
            self.set(job, state="failed", message=error, left=None, ticket=ticket, content=None)

    def interrupted(self) -> bool:
        """Put back what is under way, if something else is to come first."""
        with self._changed:
            if not (self.stopping or self._cancelled or self._removals):
                return False
            self.put_back()
            for id_ in list(self._cancelled):
                self._drop(self._jobs[id_])
            self.tell()  # of what was put back, too
            return True

    def put_back(self) -> None:
        """What is under way waits again."""
        with self._changed:
            for job in self._jobs.values():
                if job.state in UNDER_WAY:
                    job.state, job.done, job.left = "waiting", 0.0, None

    def _put(self, job: Job) -> None:
        self._forget(job)
        self._jobs[job.ticket.id] = job
        finished = [each for each in self._jobs.values() if each.state in FINISHED]
        for each in finished[: max(len(finished) - _KEPT, 0)]:
            self._forget(each)
        self.tell()

    def _drop(self, job: Job) -> None:
        self._forget(job)
        if job.state not in FINISHED:
            self.tickets.forget(job.ticket.id)
        self.tell()

    def _forget(self, job: Job) -> None:
        self._jobs.pop(job.ticket.id, None)
        # A later file of the same content is another one, which nobody has cancelled.
        self._cancelled.discard(job.ticket.id)
