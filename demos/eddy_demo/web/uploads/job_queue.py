"""Work for the writing thread: files to add, documents to remove, folders to read, a rebuild of the library."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from chroma_eddy import StoredDocument
from eddy_demo.web.errors import RequestRefused
from eddy_demo.web.http.concurrency import ChangeSignal
from eddy_demo.web.uploads.stored_uploads import StoredUploads, Upload
from eddy_demo.web.uploads.upload_job import FINISHED, IN_PROGRESS, UploadJob

_MAX_FINISHED = 200
"""Number of finished files that the page still lists."""


class JobQueue:
    """The queue of work: any thread requests it; only the thread of `LibraryWriter` carries it out and reports it."""

    def __init__(self, library: Path, max_files: int, changes: ChangeSignal) -> None:
        self.uploads = StoredUploads(library)
        self.stopping = False
        self.rebuild_requested = False
        self.rebuild_model: str | None = None  # of the rebuild; None: as the interrupted one
        self._max_files, self._signal = max_files, changes
        self._jobs: dict[str, UploadJob] = {}
        self._receiving = 0
        self._removals: set[str] = set()
        self._folders: dict[Path, None] = {}  # in the order of asking
        self._changed = threading.Condition(threading.RLock())

    # --- For the routes

    def snapshot(self) -> list[dict[str, Any]]:
        """Return all files as the page shows them."""
        with self._changed:
            return [job.as_data() for job in self._jobs.values()]

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

    def accept(self, part: Path, upload: Upload, entry: StoredDocument | None) -> str:
        """Store a received file, or delete it if the queue or the library has its content; return its job's state."""
        with self._changed:
            job = self._jobs.get(upload.id)
            if job is not None and job.state not in FINISHED:
                part.unlink(missing_ok=True)
                job.cancelled = False
                self.retry(upload.id)
                return "waiting"
            if entry is not None and entry.id not in self._removals:
                part.unlink(missing_ok=True)
                job = UploadJob(upload, "known", known_as(entry, upload.name), done=1.0, document=entry.id)
            else:
                self.uploads.keep(part, upload)
                job = UploadJob(upload)
            self._jobs.pop(upload.id, None)
            self._jobs[upload.id] = job
            finished = [other for other in self._jobs.values() if other.state in FINISHED]
            for other in finished[: max(len(finished) - _MAX_FINISHED, 0)]:
                del self._jobs[other.upload.id]
            self.notify()
            return job.state

    def cancel(self, id_: str) -> bool:
        """Cancel a file that is not written yet, or drop one that failed or is finished; return whether it exists."""
        with self._changed:
            job = self._jobs.get(id_)
            if job is None:
                return False
            if job.state in IN_PROGRESS:
                job.cancelled = True
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
            self._enter(job, "waiting")
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

    def read_folder(self, path: Path) -> None:
        """Request that the changes in a folder are read."""
        with self._changed:
            self._folders[path] = None
            self.notify()

    def rebuild(self, model: str | None = None) -> None:
        """Request a rebuild of the library with the method recommended for a model; None: finish an interrupted one."""
        self.rebuild_requested, self.rebuild_model = True, model
        self.notify()

    def notify(self) -> None:
        """Announce a change to all who wait for one."""
        with self._changed:
            self._changed.notify_all()
        self._signal.announce()

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
        return not self.stopping and bool(self._removals or self.rebuild_requested or self.is_reading_due())

    def is_reading_due(self) -> bool:
        """Whether a file or a folder waits to be read."""
        return bool(self._folders or self.waiting(1))

    def waiting(self, limit: int | None = None) -> list[UploadJob]:
        """Return the first files that wait; all without a limit."""
        with self._changed:
            return [job for job in self._jobs.values() if job.state == "waiting"][:limit]

    def finish_removals(self, keys: set[str]) -> None:
        """Record that documents are removed."""
        with self._changed:
            self._removals -= keys

    def next_folder(self) -> Path | None:
        """Take the folder that is to be read next, None without one; what changes from now on is another request."""
        with self._changed:
            path = next(iter(self._folders), None)
            if path is not None:
                del self._folders[path]
            return path

    def begin(self, job: UploadJob, state: str, **values: Any) -> None:
        """Go on with a file: to "reading", or to "embedding" with what was read."""
        with self._changed:
            for name, value in values.items():
                setattr(job, name, value)
            self._enter(job, state)

    def advance(self, jobs: list[UploadJob], characters: float, rate: float) -> None:
        """Record how many characters of a batch are embedded; the jobs are those that are not written yet."""
        with self._changed:
            for job in jobs:
                job.advance(characters, rate)
        self.notify()

    def end(self, job: UploadJob, state: str, message: str = "") -> None:
        """End the work on a file as "done", "known" or "failed"; drop it if it was cancelled meanwhile."""
        with self._changed:
            if job.cancelled and state != "done":
                self._drop(job)
                return
            self._enter(job, state, message)
            if job.cancelled:  # too late
                self._removals.add(job.document)
                self._drop(job)

    def put_back_if_interrupted(self) -> bool:
        """Put the work in progress back if something more urgent waits; return whether it does."""
        with self._changed:
            cancelled = [job for job in self._jobs.values() if job.cancelled]
            if not (self.stopping or cancelled or self._removals):
                return False
            self.put_back()
            for job in cancelled:
                self._drop(job)
            return True

    def put_back(self) -> None:
        """Let the files in progress wait again."""
        with self._changed:
            for job in self._jobs.values():
                if job.state in IN_PROGRESS:
                    job.enter("waiting")
            self.notify()

    def _enter(self, job: UploadJob, state: str, message: str = "") -> None:
        """Let a job go over to another state, and its stored file with it."""
        if state == "done":
            self.uploads.keep_original(job.upload)
        elif state == "known":
            self.uploads.delete(job.upload.id)
        elif "failed" in (job.state, state):
            job.upload = replace(job.upload, error=message)
            self.uploads.write(job.upload)
        job.enter(state, message)
        self.notify()

    def _drop(self, job: UploadJob) -> None:
        self._jobs.pop(job.upload.id, None)
        if job.state not in FINISHED:
            self.uploads.delete(job.upload.id)
        self.notify()


def known_as(entry: StoredDocument, name: str) -> str:
    """Say that the library has the text of a file of this name already."""
    known = str(entry.metadata.get("name", entry.id))
    return "already in the library" if known == name else f"already in the library as {known}"
