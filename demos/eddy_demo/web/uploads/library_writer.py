"""The one thread that writes: uploads into the library, documents out of it, all of it anew."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chroma_eddy import IndexInUse
from eddy_demo.library.index import stored
from eddy_demo.library.ingest import ingest, remove_documents
from eddy_demo.library.library_lock import sole_writer
from eddy_demo.library.rebuild import rebuild, unfinished
from eddy_demo.library.recipe import holds_library
from eddy_demo.web.uploads.job import Job, Watch, told
from eddy_demo.web.uploads.parser_process import parse

if TYPE_CHECKING:
    from eddy_demo.readers.documents import Document
    from eddy_demo.web.library_reader import Shelf
    from eddy_demo.web.limits import Limits
    from eddy_demo.web.uploads.job_queue import Jobs

BATCH = 64
"""Most files that are written together; of a new library, whose post-processing they decide, there is no limit."""
_BUSY_SECONDS = 2.0
"""Until what failed is tried again, and an idle thread looks what others have written."""


class _Interrupted(Exception):
    """What is under way is put back, for something more urgent."""


class Writer:
    """Carries out what `Jobs` holds.

    Attributes:
        jobs: What is to be written.
        shelf: The library.
        busy: Why it cannot go on; "" if it can.
        rebuilding: Share of the library that is made anew; None where it is not.
    """

    def __init__(self, jobs: Jobs, shelf: Shelf, limits: Limits) -> None:
        """Start nothing yet.

        Args:
            jobs: What is to be written.
            shelf: The library.
            limits: Of reading a file.
        """
        self.jobs, self.shelf, self.limits = jobs, shelf, limits
        self.busy = ""
        self.rebuilding: float | None = None
        self._lost = ""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    # --- For the page

    def start(self) -> None:
        """Take up what an earlier server left, and begin."""
        self.jobs.start()
        self._thread.start()

    def stop(self) -> None:
        """End; what is not written stays in the folder for the next server."""
        self.jobs.stop()
        self._thread.join(30)

    def snapshot(self) -> dict[str, Any]:
        """Everything that the page shows of the work."""
        jobs = self.jobs.listed()
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

    # --- The thread

    def _run(self) -> None:
        try:
            self.shelf.load()
            if unfinished(self.shelf.folder) is not None:
                self.jobs.rebuild()
        except Exception as error:
            self.shelf.fail(told(error))
            self.jobs.tell()
            return
        self.jobs.tell()
        while not self.jobs.stopping:
            try:
                self._next()
            except _Interrupted:
                continue
            except Exception as error:  # another process writes, the disk is full, a device fails
                self._pause(told(error))

    def _pause(self, reason: str) -> None:
        self.jobs.put_back()
        self.busy = reason
        self.jobs.tell()
        if not self.jobs.wait(_BUSY_SECONDS, always=True):  # what could not be done is not wanted any more
            self.busy = ""
            self.jobs.tell()

    def _next(self) -> None:
        if not self.jobs.wait(_BUSY_SECONDS):
            if not self.jobs.stopping:
                self._look()
            return
        self.busy = ""
        removals = self.jobs.removing()
        if removals:
            with self._held():
                remove_documents(self.shelf.folder, removals)
            self.jobs.removed(removals)
            self.shelf.touch()
        elif self.jobs.wanted_anew:
            self._remake()
        else:
            self._ingest(self.jobs.waiting(BATCH if holds_library(self.shelf.folder) else None))
        self.jobs.tell()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the library as it is known; if another process has made it anew, begin again with that one."""
        with sole_writer(self.shelf.folder):
            if self.shelf.look():
                raise _Interrupted
            yield

    def _look(self) -> None:
        """See what others have written, and say if it cannot be read."""
        lost = ""
        try:
            self.shelf.look()
        except Exception as error:
            lost = told(error)
        if lost != self._lost:
            self.busy = lost if lost or self.busy == self._lost else self.busy
            self._lost = lost
            self.jobs.tell()

    def _remake(self) -> None:
        shelf = self.shelf

        def progress(characters: float, _: int) -> None:
            self.rebuilding = min(characters / total, 1.0)
            self.check()

        total = max(sum(entry.characters for entry in shelf.entries()), 1)
        try:
            shelf.look()
            old = shelf.recipe
            recipe = unfinished(shelf.folder) or replace(old, method=old.default or old.method)
            shelf.coming = shelf.embedder_for(recipe.method, recipe.model)
            with self._held():
                rebuild(shelf.folder, recipe, shelf.coming, progress)
            shelf.open()
        except (_Interrupted, IndexInUse):
            raise
        except Exception as error:
            self.busy = f"The library could not be made anew: {told(error)}"
        finally:
            self.rebuilding = shelf.coming = None
        self.jobs.rebuilt()

    def _ingest(self, batch: Sequence[Job]) -> None:
        ready = self._ready(batch)
        if not ready:
            return
        try:
            with self._held():
                documents = [job.content for job in ready if job.content is not None]
                ingest(self.shelf.folder, self.shelf.recipe, self.shelf.raw, documents, Watch(self, ready))
        except (_Interrupted, IndexInUse):
            self.jobs.put_back()
            raise
        except Exception as error:
            reason = told(error)
            for job in ready:
                if job.state != "done":
                    self.jobs.fail(job, reason)
            return
        finally:
            self._opened()
        self.shelf.open()
        self.written(ready)

    def _ready(self, batch: Sequence[Job]) -> list[Job]:
        """What is to be embedded of a batch, each text once, and no more than is to be held at a time."""
        ready: list[Job] = []
        texts: set[str] = set()
        characters = 0
        for job in batch:
            document = self._read(job)
            if document is None:
                continue
            digest = stored(document).text_digest
            if digest in texts:  # it is known once the other one is in the library, if that comes to be
                self.jobs.set(job, state="waiting")
            else:
                texts.add(digest)
                ready.append(job)
            characters += len(document.text)
            if characters >= self.limits.together:
                break
        return ready

    def written(self, ready: Sequence[Job]) -> None:
        """Files are in the library."""
        self._opened()
        for job in ready:
            if job.state != "done":
                self.jobs.finish(job)
                self.shelf.touch()

    def _opened(self) -> None:
        """Let a library be asked as soon as it is there."""
        if self.shelf.index is None and holds_library(self.shelf.folder):
            self.shelf.open()

    def _read(self, job: Job) -> Document | None:
        """What is to be embedded of a file; None if it cannot be read, or is there already."""
        ticket = job.ticket
        self.check()
        if job.content is None:
            self.jobs.set(job, state="reading", message="")
            try:
                file = self.jobs.tickets.file(ticket.id)
                job.content = parse(file, ticket.name, ticket.origin, self.limits, self.check)
            except _Interrupted:
                raise
            except Exception as error:
                self.jobs.fail(job, told(error))
                return None
        document = job.content
        self.jobs.set(job, state="embedding", document=document.key, notes=document.notes)
        digest = stored(document).text_digest
        for entry in self.shelf.entries():
            if entry.text_digest == digest:
                self.check()  # it may be on its way out
                if entry.id == document.key:  # the last server ended between writing it and saying so
                    self.jobs.finish(job)
                else:
                    self.jobs.know(job, entry)
                self.shelf.touch()
                return None
        return document

    def check(self) -> None:
        """End what is under way, if something else is to come first."""
        if self.jobs.interrupted():
            raise _Interrupted
