"""Work for the writing thread: files to add, documents to remove, a rebuild of the library."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chroma_eddy import DocumentRow
from eddy_demo.display_text import printable
from eddy_demo.readers.documents import SourceDocument
from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.uploads.upload_queue import Upload, UploadQueue

IN_PROGRESS = ("reading", "embedding", "writing")
FINISHED = ("done", "known")
_MAX_FINISHED = 200
"""Number of finished files that the page still lists."""


@dataclass
class UploadJob:
    """An uploaded file on its way into the library."""

    upload: Upload
    state: str = "waiting"  # "waiting", "failed", or of IN_PROGRESS or FINISHED; "known": the library had it already
    message: str = ""
    done: float = 0.0  # share of its text that is embedded, 0 to 1
    left: float | None = None  # estimated seconds until it is written
    document: str = ""  # id of its document, once it has one
    older: str = ""  # id of another document of this name, which the library had before
    notes: tuple[str, ...] = ()
    content: SourceDocument | None = None  # from reading until it is written

    def as_data(self) -> dict[str, Any]:
        """Return the values that the page shows."""
        return {
            "id": self.upload.id,
            "name": self.upload.name,
            "size": self.upload.size,
            "state": self.state,
            "message": printable(self.message),
            "done": round(self.done, 4),
            "left": None if self.left is None else round(self.left, 1),
            "document": self.document,
            "older": self.older,
            "notes": [printable(note) for note in self.notes],
        }

    def mark_known(self, entry: DocumentRow) -> UploadJob:
        """Finish the job, because the library has the document already; return the job."""
        name = str(entry.metadata.get("name", entry.id))
        self.state, self.document, self.done, self.left, self.content = "known", entry.id, 1.0, None, None
        also = "" if name == self.upload.name else f" as {name}"
        self.message = f"already in the library{also}"
        return self


class JobQueue:
    """The queue of work: any thread requests it; only the thread of `LibraryWriter` carries it out and reports it."""

    def __init__(self, library: Path, max_files: int) -> None:
        self.uploads = UploadQueue(library)
        self.version = 0  # changes with every change of the queue
        self.stopping = False
        self.rebuild_requested = False
        self.rebuild_model: str | None = None  # of the rebuild; None: the library's own
        self._max_files = max_files
        self._jobs: dict[str, UploadJob] = {}
        self._receiving = 0
        self._removals: set[str] = set()
        self._cancelled: set[str] = set()
        self._changed = threading.Condition(threading.RLock())

    # --- For the routes

    def snapshot(self) -> list[dict[str, Any]]:
        """Return all files as the page shows them."""
        with self._changed:
            return [{**job.as_data(), "cancelled": id_ in self._cancelled} for id_, job in self._jobs.items()]

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Reserve a place for a file while the server receives it; refuse it if the queue is full."""
        with self._changed:
            states = [job.state for job in self._jobs.values() if job.state not in FINISHED]
            if len(states) + self._receiving >= self._max_files:
                failed = states.count("failed")
                what = f"are waiting already, {failed} of which failed" if failed else "are waiting already"
                more = ", or put away those that failed" if failed else ""
                raise RequestRefused(503, f"{self._max_files} files {what}; wait until some are written{more}")
            self._receiving += 1
        try:
            yield
        finally:
            with self._changed:
                self._receiving -= 1

    def accept(self, part: Path, upload: Upload, entry: DocumentRow | None) -> str:
        """Store a received file, or delete it if the queue or the library has its content; return its job's state."""
        with self._changed:
            job = self._jobs.get(upload.id)
            if job is not None and job.state not in FINISHED:
                part.unlink(missing_ok=True)
                self._cancelled.discard(upload.id)
                self.retry(upload.id)
                return "waiting"
            if entry is not None and entry.id not in self._removals:
                part.unlink(missing_ok=True)
                self._put(UploadJob(upload).mark_known(entry))
                return "known"
            self.uploads.keep(part, upload)
            self._put(UploadJob(upload))
            return "waiting"

    def cancel(self, id_: str) -> bool:
        """Cancel a file that is not written yet, or drop one that failed or is finished; return whether it exists."""
        with self._changed:
            job = self._jobs.get(id_)
            if job is None:
                return False
            if job.state in IN_PROGRESS:
                self._cancelled.add(id_)
                self.notify()
            else:
                self._drop(job)
            return True

    def retry(self, id_: str) -> bool:
        """Let a failed file wait again; return whether there was one."""
        with self._changed:
            job = self._jobs.get(id_)
            if job is None or job.state != "failed":
                return False
            job.upload = replace(job.upload, error="")
            self.uploads.write(job.upload)
            self.update(job, state="waiting", message="")
            return True

    def clear(self, failed: bool = False) -> None:
        """Drop the finished files, or the failed ones."""
        states = ("failed",) if failed else FINISHED
        with self._changed:
            for job in [job for job in self._jobs.values() if job.state in states]:
                self._drop(job)

    def remove(self, key: str) -> None:
        """Request the removal of a document."""
        with self._changed:
            self._removals.add(key)
            for job in self._jobs.values():
                job.older = "" if key in (job.older, job.document) else job.older
            self.notify()

    def pending_removals(self) -> set[str]:
        """Return the ids of the documents that are to be removed."""
        with self._changed:
            return set(self._removals)

    def rebuild(self, model: str | None = None) -> None:
        """Request a rebuild of the library with the method recommended for a model; None: for its own."""
        self.rebuild_requested, self.rebuild_model = True, model
        self.notify()

    def notify(self) -> None:
        """Announce a change to all who wait for one."""
        with self._changed:
            self.version += 1
            self._changed.notify_all()

    # --- For the writing thread

    def start(self) -> None:
        """Load the files that an earlier server left."""
        for upload in self.uploads.load():
            self._jobs[upload.id] = UploadJob(upload, "failed" if upload.error else "waiting", upload.error)

    def stop(self) -> None:
        """Interrupt the work in progress; unwritten files stay on disk for the next server."""
        self.stopping = True
        self.notify()

    def wait_for_work(self, seconds: float, always: bool = False) -> bool:
        """Wait for work, or `always` for any change, at most so many seconds; return whether there is work."""
        with self._changed:
            if not self.stopping and (always or not self._has_work()):
                self._changed.wait(seconds)
            return self._has_work()

    def _has_work(self) -> bool:
        return not self.stopping and bool(self._removals or self.rebuild_requested or self.waiting())

    def waiting(self, limit: int | None = None) -> list[UploadJob]:
        """Return the first files that wait; all without a limit."""
        with self._changed:
            return [job for job in self._jobs.values() if job.state == "waiting"][:limit]

    def finish_removals(self, keys: set[str]) -> None:
        """Record that documents are removed."""
        with self._changed:
            self._removals -= keys

    def update(self, job: UploadJob, **values: Any) -> None:
        """Set attributes of a job."""
        with self._changed:
            for name, value in values.items():
                setattr(job, name, value)
            self.notify()

    def finish(self, job: UploadJob) -> None:
        """Record that a file is in the library; request its removal if it was cancelled too late."""
        with self._changed:
            if job.state in FINISHED:
                return
            self.uploads.keep_original(job.upload)
            self.update(job, state="done", done=1.0, left=None, content=None)
            if job.upload.id in self._cancelled:
                self._removals.add(job.document)
                self._drop(job)

    def mark_known(self, job: UploadJob, entry: DocumentRow) -> None:
        """Record that the library has the text of a file already."""
        with self._changed:
            if job.upload.id in self._cancelled:
                self._drop(job)
                return
            self.uploads.delete(job.upload.id)
            job.mark_known(entry)
            self.notify()

    def fail(self, job: UploadJob, error: str) -> None:
        """Record that a file cannot be written; drop it if it was cancelled."""
        with self._changed:
            if job.upload.id in self._cancelled:
                self._drop(job)
                return
            upload = replace(job.upload, error=error)
            self.uploads.write(upload)
            self.update(job, state="failed", message=error, left=None, upload=upload, content=None)

    def put_back_if_interrupted(self) -> bool:
        """Put the work in progress back if something more urgent waits; return whether it does."""
        with self._changed:
            if not (self.stopping or self._cancelled or self._removals):
                return False
            self.put_back()
            for id_ in list(self._cancelled):
                self._drop(self._jobs[id_])
            self.notify()  # also of the jobs put back
            return True

    def put_back(self) -> None:
        """Let the files in progress wait again."""
        with self._changed:
            for job in self._jobs.values():
                if job.state in IN_PROGRESS:
                    job.state, job.done, job.left = "waiting", 0.0, None

    def _put(self, job: UploadJob) -> None:
        self._forget(job)
        self._jobs[job.upload.id] = job
        finished = [other for other in self._jobs.values() if other.state in FINISHED]
        for other in finished[: max(len(finished) - _MAX_FINISHED, 0)]:
            self._forget(other)
        self.notify()

    def _drop(self, job: UploadJob) -> None:
        self._forget(job)
        if job.state not in FINISHED:
            self.uploads.delete(job.upload.id)
        self.notify()

    def _forget(self, job: UploadJob) -> None:
        self._jobs.pop(job.upload.id, None)
        self._cancelled.discard(job.upload.id)  # which must not cancel a later upload of the same content
