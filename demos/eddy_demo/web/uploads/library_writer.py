"""The only thread that writes: it adds uploads to the library, removes documents, and rebuilds the library."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from chroma_eddy import IndexInUse
from eddy_demo.library.index import to_index_document
from eddy_demo.library.ingest import ingest, remove_documents
from eddy_demo.library.library_lock import lock_library
from eddy_demo.library.rebuild import next_recipe, rebuild_library, unfinished_rebuild
from eddy_demo.library.recipe import holds_library
from eddy_demo.readers.documents import SourceDocument, read_document
from eddy_demo.web.answers.samples import SampleQuestions
from eddy_demo.web.errors import error_message
from eddy_demo.web.library_reader import LibraryReader
from eddy_demo.web.limits import Limits
from eddy_demo.web.uploads.job_queue import JobQueue, UploadJob

BATCH = 64
"""Maximum number of files written together; none for a new library, whose first batch fits its post-processing."""
_FRESH = 10
"""Number of the files written last whose sample questions are made first."""
_BUSY_SECONDS = 2.0
"""Time until a retry after a failure, and between checks for other processes' changes."""


class _Interrupted(Exception):
    """The work in progress was put back for something more urgent."""


class LibraryWriter:
    """Carries out what a `JobQueue` holds, and makes sample questions when there is nothing to do."""

    def __init__(self, jobs: JobQueue, reader: LibraryReader, limits: Limits, samples: SampleQuestions) -> None:
        self.jobs, self.reader, self.limits, self.samples = jobs, reader, limits, samples
        self.busy = ""  # why the work cannot go on
        self.rebuilding: float | None = None  # progress, 0 to 1
        self._read_error = ""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    # --- For the routes

    def start(self) -> None:
        """Load what an earlier server left, and start the thread."""
        self.jobs.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; unwritten files stay on disk for the next server."""
        self.jobs.stop()
        self._thread.join(30)

    def snapshot(self) -> dict[str, Any]:
        """Return everything that the page shows of the work."""
        jobs = self.jobs.snapshot()
        left = [job["left"] for job in jobs if job["left"] is not None]
        return {
            "jobs": jobs,
            "left": max(left, default=None),
            "busy": self.busy,
            "rebuilding": self.rebuilding,
            "ready": self.reader.ready,
            "error": self.reader.error,
            "library": self.reader.version,
            "samples": self.samples.version,
        }

    # --- The thread

    def _run(self) -> None:
        try:
            self.reader.load()
            if unfinished_rebuild(self.reader.folder) is not None:
                self.jobs.rebuild()
        except Exception as error:
            self.reader.fail(error_message(error))
            self.jobs.notify()
            return
        self.jobs.notify()
        while not self.jobs.stopping:
            try:
                self._next()
            except _Interrupted:
                continue
            except Exception as error:  # another process writes, the disk is full, a device fails
                self._pause(error_message(error))

    def _pause(self, reason: str) -> None:
        self.jobs.put_back()
        self.busy = reason
        self.jobs.notify()
        if not self.jobs.wait_for_work(_BUSY_SECONDS, always=True):  # the failed work was cancelled
            self.busy = ""
            self.jobs.notify()

    def _next(self) -> None:
        if not self.jobs.wait_for_work(_BUSY_SECONDS):
            if not self.jobs.stopping:
                self._check_library()
                self._make_samples()
            return
        self.busy = ""
        removals = self.jobs.pending_removals()
        if removals:
            with self._locked():
                remove_documents(self.reader.folder, removals)
            self.jobs.finish_removals(removals)
            self.reader.mark_changed()
        elif self.jobs.rebuild_requested:
            self._rebuild()
        else:
            self._ingest(self.jobs.waiting(BATCH if holds_library(self.reader.folder) else None))
        self.jobs.notify()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the library; start over if another process has replaced it."""
        with lock_library(self.reader.folder):
            if self.reader.check_for_changes():
                raise _Interrupted
            yield

    def _check_library(self) -> None:
        """Notice what other processes have written, and report if the library cannot be read."""
        problem = ""
        try:
            self.reader.check_for_changes()
        except Exception as error:
            problem = error_message(error)
        if problem != self._read_error:
            self.busy = problem if problem or self.busy == self._read_error else self.busy
            self._read_error = problem
            self.jobs.notify()

    def _make_samples(self) -> None:
        """Make the sample questions of one document, the files written last first."""
        written = [job["document"] for job in self.jobs.snapshot() if job["state"] == "done"]
        if self.samples.make_next(written[-_FRESH:], lambda: self.jobs.stopping or self.jobs.wait_for_work(0)):
            self.jobs.notify()

    def _rebuild(self) -> None:
        reader = self.reader

        def report_progress(characters: float, _: int) -> None:
            self.rebuilding = min(characters / total, 1.0)
            self.check()

        model = self.jobs.rebuild_model
        total = max(sum(entry.characters for entry in reader.entries()), 1)
        try:
            reader.check_for_changes()
            recipe = (None if model else unfinished_rebuild(reader.folder)) or next_recipe(reader.recipe, model)
            embedder = reader.begin_rebuild(recipe)
            with self._locked():
                rebuild_library(reader.folder, recipe, embedder, report_progress)
            reader.open()
        except (_Interrupted, IndexInUse):
            raise
        except Exception as error:
            self.busy = f"The library could not be made anew: {error_message(error)}"
        finally:
            self.rebuilding = None
            reader.end_rebuild()
        if self.jobs.rebuild_model == model:  # else another model was asked for meanwhile
            self.jobs.rebuild_requested = False

    def _ingest(self, batch: Sequence[UploadJob]) -> None:
        ready = self._prepare(batch)
        if not ready:
            return
        try:
            with self._locked():
                reader = self.reader
                documents = [job.content for job in ready if job.content is not None]
                ingest(reader.folder, reader.recipe, reader.unfitted_embedder, documents, _JobProgress(self, ready))
        except (_Interrupted, IndexInUse):
            self.jobs.put_back()
            raise
        except Exception as error:
            reason = error_message(error)
            for job in ready:
                if job.state != "done":
                    self.jobs.fail(job, reason)
            return
        finally:
            self._open_new_library()
        self.reader.open()
        self.mark_written(ready)

    def _prepare(self, batch: Sequence[UploadJob]) -> list[UploadJob]:
        """Read the files of a batch; return those to embed, each text once, up to `Limits.batch_characters`."""
        ready: list[UploadJob] = []
        digests: set[str] = set()
        characters = 0
        for job in batch:
            document = self._read(job)
            if document is None:
                continue
            digest = to_index_document(document).text_digest
            if digest in digests:  # it will be known once the other file is in the library, if that succeeds
                self.jobs.update(job, state="waiting")
            else:
                digests.add(digest)
                ready.append(job)
            characters += len(document.text)
            if characters >= self.limits.batch_characters:
                break
        return ready

    def mark_written(self, jobs: Sequence[UploadJob]) -> None:
        """Record that files are in the library."""
        self._open_new_library()
        for job in jobs:
            if job.state != "done":
                self.jobs.finish(job)
                self.reader.mark_changed()

    def _open_new_library(self) -> None:
        """Open a new library as soon as it exists."""
        if self.reader.index is None and holds_library(self.reader.folder):
            self.reader.open()

    def _read(self, job: UploadJob) -> SourceDocument | None:
        """Read a file; return None if it cannot be read, or if the library has its text already."""
        upload = job.upload
        self.check()
        if job.content is None:
            self.jobs.update(job, state="reading", message="")
            try:
                file = self.jobs.uploads.content_path(upload.id)
                job.content = read_document(file, upload.name, upload.origin, self.limits, self.check)
            except _Interrupted:
                raise
            except Exception as error:
                self.jobs.fail(job, error_message(error))
                return None
        document = job.content
        self.jobs.update(job, state="embedding", document=document.key, notes=document.notes)
        digest, entries = to_index_document(document).text_digest, self.reader.entries()
        for entry in entries:
            if entry.text_digest == digest:
                self.check()  # its removal may have been requested
                if entry.id == document.key:  # an earlier server wrote it and stopped before recording that
                    self.jobs.finish(job)
                else:
                    self.jobs.mark_known(job, entry)
                self.reader.mark_changed()
                return None
        same_name = [entry.id for entry in entries if entry.metadata.get("name") == upload.name]
        self.jobs.update(job, older=next(iter(same_name), ""))
        return document

    def check(self) -> None:
        """Interrupt the work in progress if something more urgent waits."""
        if self.jobs.put_back_if_interrupted():
            raise _Interrupted


class _JobProgress:
    """Turns the progress of an ingestion into that of its files, given in the order of writing."""

    def __init__(self, writer: LibraryWriter, jobs: Sequence[UploadJob]) -> None:
        self._writer, self._jobs = writer, jobs
        self._ends = list(accumulate(len(job.content.text) for job in jobs if job.content is not None))
        self._began = time.monotonic()

    def __call__(self, characters: float, written: int) -> None:
        """Record the number of embedded characters and of written files."""
        if written:
            self._writer.mark_written(self._jobs[:written])  # even if the rest is interrupted
        self._writer.check()
        rate = characters / max(time.monotonic() - self._began, 1e-3)
        start = self._ends[written - 1] if written else 0
        for job, end in zip(self._jobs[written:], self._ends[written:], strict=True):
            job.done = min(max((characters - start) / max(end - start, 1), 0.0), 1.0)
            job.state = "writing" if job.done == 1.0 else "embedding"
            job.left = (end - characters) / rate if rate and characters < end else None
            start = end
        self._writer.jobs.notify()
