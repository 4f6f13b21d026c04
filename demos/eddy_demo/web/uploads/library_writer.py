"""The only thread that writes: it adds uploads and watched folders, removes documents, and rebuilds the library."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from chroma_eddy import IndexInUse, StoredDocument
from eddy_demo.library.index import to_index_document
from eddy_demo.library.ingest import ingest, remove_documents
from eddy_demo.library.library_lock import lock_library
from eddy_demo.library.rebuild import RebuildProgress, awaits_rebuild, next_settings, read_state, rebuild_library
from eddy_demo.web.errors import error_message
from eddy_demo.web.library_reader import LibraryReader
from eddy_demo.web.limits import Limits
from eddy_demo.web.uploads.folder_watcher import BATCH, FolderWatcher, Interruption
from eddy_demo.web.uploads.job_queue import JobQueue, known_as
from eddy_demo.web.uploads.upload_job import UploadJob
from readers_eddy.documents import SourceDocument, read_document

_BUSY_SECONDS = 2.0
"""Time until a retry after a failure, and between checks for other processes' changes."""


class LibraryWriter:
    """Carries out what a `JobQueue` holds."""

    def __init__(self, jobs: JobQueue, reader: LibraryReader, limits: Limits, folders: FolderWatcher) -> None:
        self.jobs, self.reader, self.limits, self.folders = jobs, reader, limits, folders
        self.busy = ""  # why the work cannot go on
        self.rebuilding: RebuildProgress | None = None
        self.deepening = False  # whether that is for the layers of the library's own model
        self._follows = False  # whether `rebuilding` is what another process does
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
            "folders": self.folders.snapshot(),
            "left": max(left, default=None),
            "busy": self.busy,
            "rebuilding": None if self.rebuilding is None else rebuild_data(self.rebuilding, self.deepening),
            "ready": self.reader.ready,
            "error": self.reader.error,
            "library": self.reader.version,
        }

    # --- The thread

    def _run(self) -> None:
        try:
            self.reader.load()
            self._request_due_rebuild()
        except Exception as error:
            self.reader.fail(error_message(error))
            self.jobs.notify()
            return
        self.jobs.notify()
        while not self.jobs.stopping:
            try:
                try:
                    self._next()
                except IndexInUse as error:
                    self._follow(error)
            except Interruption:
                continue
            except Exception as error:  # the disk is full, a device fails
                self._pause(error_message(error))

    def _follow(self, error: IndexInUse) -> None:
        """Show what the process does that writes; work waits for it, and the library answers meanwhile."""
        reader = self.reader
        reader.check_for_changes()
        if not awaits_rebuild(reader.folder, reader.settings):
            self._pause(error_message(error))
            return
        self._request_due_rebuild()
        self.deepening = reader.settings.plan == "deepen"
        self._follows, self.rebuilding = True, read_state(reader.folder).progress
        what = "reading the library more closely" if self.deepening else "making the library anew"
        waits = self.jobs.is_reading_due() or self.jobs.pending_removals()
        self._pause(f"Another process is {what}. What waits here is done after that." if waits else "")

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
            return
        self.busy = ""
        removals = self.jobs.pending_removals()
        if removals:
            with self._locked():
                remove_documents(self.reader.folder, removals)
            self.jobs.finish_removals(removals)
            self.reader.mark_changed()
        elif batch := self.jobs.waiting(BATCH):
            self._ingest(batch)
            self._request_due_rebuild()
        elif path := self.jobs.next_folder():
            self.folders.read(path, self.check, self._locked)
            self._request_due_rebuild()
        else:
            self._rebuild()
        self.jobs.notify()

    def _request_due_rebuild(self) -> None:
        reader = self.reader
        if not self.jobs.rebuild_requested and awaits_rebuild(reader.folder, reader.settings):
            self.jobs.rebuild()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the library; start over if another process has replaced it."""
        with lock_library(self.reader.folder):
            if self.reader.check_for_changes():
                self.folders.read_all_again()
                raise Interruption
            if self._follows:
                self._follows, self.rebuilding = False, None
            yield

    def _check_library(self) -> None:
        """Notice what other processes have written, and report if the library cannot be read."""
        problem = ""
        try:
            if self.reader.check_for_changes():
                self.folders.read_all_again()
        except Exception as error:
            problem = error_message(error)
        if problem != self._read_error:
            self.busy = problem if problem or self.busy == self._read_error else self.busy
            self._read_error = problem
            self.jobs.notify()

    def _rebuild(self) -> None:
        """Rebuild the library, or go on with it; files that wait come first, and so does another rebuild."""
        reader, model = self.reader, self.jobs.rebuild_model

        def report_progress(progress: RebuildProgress) -> None:
            self.rebuilding = progress
            self.jobs.notify()
            self.check()
            if self.jobs.is_reading_due() or self.jobs.rebuild_model != model:
                raise Interruption

        try:
            with self._locked():
                stored, state = reader.settings, read_state(reader.folder)
                settings = next_settings(stored, model) if model else state.due(stored)
                if settings is not None:
                    self.deepening = stored.plan == "deepen" and settings.model == stored.model
                    self.rebuilding = state.progress
                    self.jobs.notify()
                    embedder = reader.begin_rebuild(settings)
                    rebuild_library(reader.folder, settings, embedder, report_progress, state)
            if settings is not None:
                reader.open()
        except IndexInUse:
            raise
        except Exception as error:
            what = "read more closely" if self.deepening else "made anew"
            self.busy = f"The library could not be {what}: {error_message(error)}"
        self.rebuilding = None
        reader.end_rebuild()
        if self.jobs.rebuild_model == model:  # else another model was asked for meanwhile
            self.jobs.rebuild_requested = False

    def _ingest(self, batch: Sequence[UploadJob]) -> None:
        ready = self._prepare(batch)
        if not ready:
            return
        began = time.monotonic()

        def report_progress(characters: float, written: int) -> None:
            if written:
                self._mark_written(ready[:written])  # even if the rest is interrupted
            self.check()
            self.jobs.advance(ready[written:], characters, characters / max(time.monotonic() - began, 1e-3))

        try:
            with self._locked():
                reader = self.reader
                documents = [job.content for job in ready if job.content is not None]
                _, failed = ingest(reader.folder, reader.settings, reader.embedder, documents, report_progress)
        except (Interruption, IndexInUse):
            self.jobs.put_back()
            raise
        except Exception as error:
            reason = error_message(error)
            for job in ready:
                if job.state != "done":
                    self.jobs.end(job, "failed", reason)
            return
        finally:
            self.reader.open_new()
        self.reader.open()
        for job in ready:
            if problem := failed.get(job.document):
                self.jobs.end(job, "failed", error_message(problem))
        self._mark_written([job for job in ready if job.document not in failed])

    def _prepare(self, batch: Sequence[UploadJob]) -> list[UploadJob]:
        """Read the files of a batch; return those to embed, each text once, up to `Limits.batch_characters`."""
        entries = self.reader.entries()
        known = {entry.text_digest: entry for entry in entries}
        older = {str(entry.metadata.get("name")): entry.id for entry in reversed(entries)}
        ready: dict[str, UploadJob] = {}
        characters = begins = 0
        for job in batch:
            document = self._read(job)
            if document is None:
                continue
            digest = to_index_document(document).text_digest
            if digest in known:
                self._mark_known(job, known[digest])
                continue
            if digest in ready:  # it will be known once the other file is in the library, if that succeeds
                self.jobs.begin(job, "waiting")
            else:
                ready[digest] = job
                self.jobs.begin(job, "embedding", begins=begins, older=older.get(job.upload.name, ""))
                begins += len(document.text)
            characters += len(document.text)
            if characters >= self.limits.batch_characters:
                break
        return list(ready.values())

    def _read(self, job: UploadJob) -> SourceDocument | None:
        """Read a file, unless that was done before an interruption; return None if it cannot be read."""
        upload = job.upload
        self.check()
        if job.content is None:
            self.jobs.begin(job, "reading")
            try:
                file = self.jobs.uploads.content_path(upload.id)
                job.content = read_document(
                    file, name=upload.name, origin=upload.origin, limits=self.limits, check=self.check
                )
            except Exception as error:
                self.jobs.end(job, "failed", error_message(error))
                return None
        self.jobs.begin(job, "embedding", document=job.content.key, notes=job.content.notes)
        return job.content

    def _mark_known(self, job: UploadJob, entry: StoredDocument) -> None:
        """Record that the library has the text of a file already."""
        self.check()  # its removal may have been requested
        if entry.id == job.document:  # an earlier server wrote it and stopped before recording that
            self.jobs.end(job, "done")
        else:
            job.document = entry.id
            self.jobs.end(job, "known", known_as(entry, job.upload.name))
        self.reader.mark_changed()

    def _mark_written(self, jobs: Sequence[UploadJob]) -> None:
        """Record that files are in the library."""
        self.reader.open_new()
        for job in jobs:
            if job.state != "done":
                self.jobs.end(job, "done")
                self.reader.mark_changed()

    def check(self) -> None:
        """Interrupt the work in progress if something more urgent waits."""
        if self.jobs.put_back_if_interrupted():
            raise Interruption


def rebuild_data(progress: RebuildProgress, deepening: bool) -> dict[str, Any]:
    """Return what the page shows of a rebuild."""
    speed, left = progress.speed, progress.left
    return {
        "done": round(progress.done, 4),
        "left": None if left is None else round(left, 1),
        "speed": None if speed is None else round(speed),
        "deepening": deepening,
    }
