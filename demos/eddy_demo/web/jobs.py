"""The one thread that writes: uploads into the library, documents out of it, all of it anew."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chroma_eddy import IndexInUse
from eddy_demo.ingest import ingest, remove_documents
from eddy_demo.library import stored
from eddy_demo.rebuild import rebuild, unfinished
from eddy_demo.recipe import holds_library
from eddy_demo.web.job import FINISHED, Job, Watch, known, told
from eddy_demo.web.parsing import parse
from eddy_demo.web.tickets import Ticket, Tickets
from eddy_demo.writing import sole_writer

if TYPE_CHECKING:
    from chroma_eddy import Entry
    from eddy_demo.reading import Document
    from eddy_demo.web.limits import Limits
    from eddy_demo.web.shelf import Shelf

BATCH = 64
"""Most files that are written together; of a new library, whose post-processing they decide, there is no limit."""
_BUSY_SECONDS = 2.0
_KEPT = 200
"""Finished files that are still listed."""


class _Interrupted(Exception):
    """What is under way is put back, for something more urgent."""


class Jobs:
    """What is to be written, and the thread that writes it."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        """Start nothing yet.

        Args:
            shelf: The library.
            limits: Of reading a file.
        """
        self.shelf, self.limits = shelf, limits
        self.tickets = Tickets(shelf.folder)
        self.version = 0
        self.busy = ""
        self.rebuilding: float | None = None
        self._jobs: dict[str, Job] = {}
        self._read: dict[str, Document] = {}
        self._removals: set[str] = set()
        self._cancelled: set[str] = set()
        self._rebuild = False
        self._changed = threading.Condition(threading.RLock())
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)

    # --- For the page

    def start(self) -> None:
        """Take up what an earlier server left, and begin."""
        for ticket in self.tickets.stored():
            self._jobs[ticket.id] = Job(ticket, "failed" if ticket.error else "waiting", ticket.error)
        self._thread.start()

    def stop(self) -> None:
        """End; what is not written stays in the folder for the next server."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(30)

    def snapshot(self) -> dict[str, Any]:
        """Everything that the page shows of the work."""
        with self._changed:
            jobs = [job.as_data() for job in self._jobs.values()]
        left = [job["left"] for job in jobs if job["left"] is not None]
        return {
            "jobs": jobs,
            "left": max(left, default=None),
            "busy": self.busy,
            "rebuilding": self.rebuilding,
            "ready": self.shelf.ready,
            "error": self.shelf.error,
            "library": self.shelf.version,
        }

    def waiting(self) -> int:
        """Files that are not written yet."""
        with self._changed:
            return sum(job.state not in (*FINISHED, "failed") for job in self._jobs.values())

    def find(self, id_: str) -> Job | None:
        """A file of that content that is on its way or failed."""
        with self._changed:
            return self._jobs.get(id_)

    def add(self, ticket: Ticket) -> None:
        """Take a file that was received whole."""
        self._put(Job(ticket))

    def add_known(self, ticket: Ticket, entry: Entry) -> None:
        """List a file that the library has already."""
        self._put(known(Job(ticket), entry))

    def cancel(self, id_: str) -> bool:
        """Take a file back that is not written yet, or put away one that failed or is finished."""
        with self._changed:
            job = self._jobs.get(id_)
            if job is None:
                return False
            if job.state in ("reading", "embedding", "writing"):
                self._cancelled.add(id_)
            else:
                self._drop(id_)
            self.tell()
            return True

    def retry(self, id_: str) -> bool:
        """Try a file again that failed."""
        with self._changed:
            job = self._jobs.get(id_)
            if job is None or job.state != "failed":
                return False
            job.ticket = replace(job.ticket, error="")
            self.tickets.write(job.ticket)
            job.state, job.message = "waiting", ""
            self.tell()
            return True

    def clear(self) -> None:
        """Put away what is finished."""
        with self._changed:
            for id_ in [id_ for id_, job in self._jobs.items() if job.state in FINISHED]:
                del self._jobs[id_]
            self.tell()

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

    # --- The thread

    def _run(self) -> None:
        try:
            self.shelf.load()
            self._rebuild = unfinished(self.shelf.folder) is not None
        except Exception as error:
            self.shelf.fail(told(error))
            self.tell()
            return
        self.tell()
        while not self._stopping:
            try:
                self._next()
            except _Interrupted:
                continue
            except Exception as error:  # another process writes, the disk is full, a device fails
                self._pause(told(error))

    def _pause(self, reason: str) -> None:
        with self._changed:
            self._put_back()
            self.busy = reason
            self.tell()
            self._changed.wait(_BUSY_SECONDS)

    def _next(self) -> None:
        with self._changed:
            while not (self._stopping or self._removals or self._rebuild or self._batch()):
                self._changed.wait()
            if self._stopping:
                return
            removals, batch = set(self._removals), self._batch()
            self.busy = ""
        if removals:
            with sole_writer(self.shelf.folder):
                remove_documents(self.shelf.folder, removals)
            with self._changed:
                self._removals -= removals
            self.shelf.touch()
        elif self._rebuild:
            self._remake()
        else:
            self._ingest(batch)
        self.tell()

    def _batch(self) -> list[Job]:
        waiting = [job for job in self._jobs.values() if job.state == "waiting"]
        return waiting[:BATCH] if holds_library(self.shelf.folder) else waiting

    def _remake(self) -> None:
        shelf = self.shelf

        def progress(characters: float, _: int) -> None:
            self.rebuilding = min(characters / total, 1.0)
            self.check()

        total = max(sum(entry.characters for entry in shelf.entries()), 1)
        try:
            old = shelf.recipe
            recipe = unfinished(shelf.folder) or replace(old, method=old.default or old.method)
            shelf.coming = shelf.embedder_for(recipe.method, recipe.model)
            with sole_writer(shelf.folder):
                rebuild(shelf.folder, recipe, shelf.coming, progress)
            shelf.open()
        except (_Interrupted, IndexInUse):
            raise
        except Exception as error:
            self.busy = f"The library could not be made anew: {told(error)}"
        finally:
            self.rebuilding = shelf.coming = None
        self._rebuild = False

    def _ingest(self, batch: list[Job]) -> None:
        for job in batch:
            self._parse(job)
        ready = [job for job in batch if job.state == "embedding"]
        ends, total = {}, 0
        for job in ready:
            total += len(self._read[job.ticket.id].text)
            ends[job.ticket.id] = total
        if not ready:
            return
        watch = Watch(self, ready, ends)
        try:
            with sole_writer(self.shelf.folder):
                documents = [self._read[job.ticket.id] for job in ready]
                ingest(self.shelf.folder, self.shelf.recipe, self.shelf.raw, documents, watch)
        except (_Interrupted, IndexInUse):
            self._put_back()
            raise
        except Exception as error:
            reason = told(error)
            for job in ready:
                if job.state != "done":
                    self._fail(job, reason)
            return
        finally:
            self.opened()
        self.shelf.open()
        for job in ready:
            self.finish(job)

    def opened(self) -> None:
        """Let a library be asked as soon as it is there."""
        if self.shelf.index is None and holds_library(self.shelf.folder):
            self.shelf.open()

    def _parse(self, job: Job) -> None:
        ticket = job.ticket
        if ticket.id not in self._read:
            self.check()
            self._set(job, state="reading", message="")
            try:
                file = self.tickets.file(ticket.id)
                document = parse(file, ticket.name, ticket.origin, self.limits, self.check)
            except _Interrupted:
                raise
            except Exception as error:
                self._fail(job, told(error))
                return
            self._read[ticket.id] = document
        document = self._read[ticket.id]
        job.notes = document.notes
        if (entry := self._same(document)) is not None:
            self.tickets.forget(ticket.id)
            self._read.pop(ticket.id)
            with self._changed:
                known(job, entry)
                self.tell()
        else:
            self._set(job, state="embedding", document=document.key)

    def _same(self, document: Document) -> Entry | None:
        """A document of the library with the same text."""
        digest = stored(document).text_digest
        return next((entry for entry in self.shelf.entries() if entry.text_digest == digest), None)

    def check(self) -> None:
        """End what is under way, if something else is to come first."""
        with self._changed:
            if not (self._stopping or self._cancelled or self._removals):
                return
            self._put_back()
            for id_ in self._cancelled:
                self._drop(id_)
            self._cancelled.clear()
            self.tell()
        raise _Interrupted

    def _put_back(self) -> None:
        for job in self._jobs.values():
            if job.state in ("reading", "embedding", "writing"):
                job.state, job.done, job.left = "waiting", 0.0, None

    def _drop(self, id_: str) -> None:
        job = self._jobs.pop(id_, None)
        self._read.pop(id_, None)
        if job is not None and job.state not in FINISHED:
            self.tickets.forget(id_)

    def _fail(self, job: Job, error: str) -> None:
        self._read.pop(job.ticket.id, None)
        self._set(job, state="failed", message=error, left=None, ticket=self.tickets.fail(job.ticket, error))

    def finish(self, job: Job) -> None:
        """A file is in the library."""
        if job.state != "done":
            self.tickets.forget(job.ticket.id)
            self._read.pop(job.ticket.id, None)
            self._set(job, state="done", done=1.0, left=None)
            self.shelf.touch()

    def _put(self, job: Job) -> None:
        with self._changed:
            self._jobs.pop(job.ticket.id, None)
            self._jobs[job.ticket.id] = job
            finished = [id_ for id_, each in self._jobs.items() if each.state in FINISHED]
            for id_ in finished[: max(len(finished) - _KEPT, 0)]:
                del self._jobs[id_]
            self.tell()

    def _set(self, job: Job, **values: Any) -> None:
        with self._changed:
            for name, value in values.items():
                setattr(job, name, value)
            self.tell()

    def tell(self) -> None:
        """Wake whoever waits for a change."""
        with self._changed:
            self.version += 1
            self._changed.notify_all()
