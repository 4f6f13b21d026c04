"""The only thread that writes: it brings the library to uploads and followed folders, and makes it anew."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chroma_eddy import Document, IndexInUse, StoredDocument
from eddy_demo.display_text import printable
from eddy_demo.library.library import (
    Failures,
    Progress,
    RebuildProgress,
    delete_upload,
    ingest,
    lock_library,
    next_settings,
    read_state,
    rebuild_library,
)
from eddy_demo.library.settings import FILES_FOLDER, FOLDERS_FILE, Choices, upload_path
from eddy_demo.library.sync import FileReport, Root, shown_name, sync, watch
from eddy_demo.web.errors import RequestRefused, error_message
from eddy_demo.web.http.concurrency import ChangeSignal
from eddy_demo.web.library_reader import LibraryReader
from eddy_demo.web.limits import Limits
from eddy_demo.web.uploads import Uploads
from eddy_embed.utils.atomic_files import atomic_write
from readers_eddy.content import NothingToRead
from readers_eddy.documents import ReadResult, document_key, list_other_types, list_skipped

_BUSY_SECONDS = 2.0
"""Time until a retry after a failure, and between checks for other processes' changes."""
_RETRY_SECONDS = 30.0
"""Time after which a folder is read again that could not be."""
_MAX_FINISHED = 200
"""Number of finished files that the page still lists."""
_SHOWN = 50
"""Number of files whose errors the page shows, for each folder."""
_FINISHED = ("done", "known")


class Interruption(BaseException):
    """The work in progress is left for something more urgent; no error of that work."""


@dataclass
class Job:
    """An uploaded file on its way into the library."""

    file: Path
    state: str = "waiting"  # or "reading", "embedding", "done", "known", "failed"
    message: str = ""
    done: float = 0.0  # share of its text that is embedded
    left: float | None = None  # estimated seconds until it is written
    document: str = ""  # id of its document, once the library has it
    older: str = ""  # id of another uploaded document of this name
    notes: tuple[str, ...] = ()
    began: float = field(default_factory=time.monotonic, repr=False)  # the present state

    def as_data(self) -> dict[str, Any]:
        """Return the values that the page shows."""
        return {
            "id": self.file.name.partition("-")[0],
            "name": shown_name(self.file.name),
            "state": self.state,
            "message": printable(self.message),
            "done": round(self.done, 4),
            "left": None if self.left is None else round(self.left, 1),
            "document": self.document,
            "older": self.older,
            "notes": [printable(note) for note in self.notes],
        }


@dataclass
class Followed:
    """A followed folder and what the page shows of it."""

    root: Root
    state: str = "waiting"  # or "reading", "embedding", "watching", "gone"
    file: str = ""  # that is in work
    left: int = 0  # changed files that come after those in work
    problem: str = ""  # why it could not be read the last time
    failed: float = field(default=0.0, repr=False)  # when that was

    def as_data(self) -> dict[str, Any]:
        """Return the values that the page shows."""
        lines = list_skipped([each for file in self.root.skipped.values() for each in file])
        others = self.root.other_types
        return {
            "path": str(self.root.path),
            "state": self.state,
            "file": printable(self.file),
            "left": self.left,
            "problem": printable(self.problem),
            "files": self.root.files,
            "skipped": [printable(line) for line in lines[:_SHOWN]],
            "more": max(len(lines) - _SHOWN, 0),
            "others": printable(list_other_types(others)) if others else "",
        }


class Follower:
    """Follows the folder of uploads and those that the user names. Any thread may ask; one thread does the work.

    The folders say what is to be done, also after a kill: a file that the library lacks is read, a document whose file
    does not exist any more is removed.
    """

    def __init__(self, reader: LibraryReader, limits: Limits, changes: ChangeSignal) -> None:
        self.reader, self.limits, self.uploads = reader, limits, Uploads(reader.folder)
        self.busy = ""  # why the work cannot go on
        self.rebuilding: RebuildProgress | None = None
        self.deepening = False  # whether that is for the layers of the library's own model
        self.model = ""  # with which the library is to be made anew
        self._files = Root(self.uploads.folder)
        self._followed: dict[Path, Followed] = {}
        self._jobs: dict[str, Job] = {}  # by the file's absolute path
        self._receiving = 0
        self._changed_roots: dict[Path, None] = {}
        self._urgent = self._others_rebuild = self._rebuild_failed = False
        self._read_error = ""
        self._signal, self._stop, self._changed = changes, threading.Event(), threading.Condition(threading.RLock())
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._run, self._watch)]

    def start(self, follows: bool) -> None:
        """Start the thread; `follows` the folders that an earlier server followed."""
        with suppress(OSError, ValueError, RecursionError, TypeError):
            stored = json.loads((self.reader.folder / FOLDERS_FILE).read_text(encoding="utf-8"))
            paths = [Path(each) for each in stored][: self.limits.watched_folders if follows else 0]
            self._followed = {path: Followed(Root(path)) for path in paths}
        self._request(self.uploads.folder)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the work in progress; the next server goes on."""
        self._stop.set()
        self.notify()
        for thread in self._threads:
            thread.join(30)

    # --- For the routes

    def snapshot(self) -> dict[str, Any]:
        """Return everything that the page shows of the work."""
        with self._changed:
            jobs = [job.as_data() for job in self._jobs.values()]
            folders = [each.as_data() for each in self._followed.values()]
        return {
            "jobs": jobs,
            "folders": folders,
            "busy": self.busy,
            "rebuilding": None if self.rebuilding is None else rebuild_data(self.rebuilding, self.deepening),
            "ready": self.reader.ready,
            "error": self.reader.error,
            "library": self.reader.version,
        }

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Reserve a place for a file while the server receives it; refuse it if too many wait."""
        with self._changed:
            states = [job.state for job in self._jobs.values() if job.state not in _FINISHED]
            if len(states) + self._receiving >= self.limits.queued_files:
                failed = states.count("failed")
                what = f"are waiting already, {failed} of which failed" if failed else "are waiting already"
                more = ", or put away those that failed" if failed else ""
                raise RequestRefused(503, f"{self.limits.queued_files} files {what}; wait until some are written{more}")
            self._receiving += 1
        try:
            yield
        finally:
            with self._changed:
                self._receiving -= 1

    def accept(self, part: Path, digest: str, name: str) -> str:
        """Save a received file, unless its bytes are there already; return its state."""
        file, is_new = self.uploads.keep(part, digest, name)
        key = document_key(f"{FILES_FOLDER}/{file.name}")
        entry = None if is_new else self.reader.entry(key)
        with self._changed:
            path, known = _absolute(file), shown_name(file.name)
            job = self._jobs.pop(path, None) or Job(file)
            self._jobs[path] = job
            if entry is not None:
                job.state, job.document = "known", key
                job.message = "already in the library" + ("" if known == name else f" as {known}")
            elif is_new or job.state in ("failed", *_FINISHED):
                self._jobs[path] = Job(file)
                self._files.retry.add(path)
            finished = [path for path, job in self._jobs.items() if job.state in _FINISHED]
            for path in finished[: max(len(finished) - _MAX_FINISHED, 0)]:
                del self._jobs[path]
        self._request(self.uploads.folder)
        return job.state if entry is not None else "waiting"

    def cancel(self, digest: str) -> bool:
        """Delete a listed file that is not in the library yet, or drop a finished one; return whether there was one."""
        job = self._find(digest)
        if job is not None:
            with self._changed:
                self._jobs.pop(_absolute(job.file), None)
            if job.state not in _FINISHED:
                self._delete(f"{FILES_FOLDER}/{job.file.name}")
            self.notify()
        return job is not None

    def retry(self, digest: str) -> bool:
        """Let a failed file wait again; return whether there was one."""
        job = self._find(digest)
        if job is None or job.state != "failed":
            return False
        self._jobs[_absolute(job.file)] = Job(job.file)
        self._files.retry.add(_absolute(job.file))
        self._request(self.uploads.folder)
        return True

    def clear(self, failed: bool = False) -> None:
        """Drop the finished files from the list, or delete the failed ones."""
        states = ("failed",) if failed else _FINISHED
        with self._changed:
            jobs = [job for job in self._jobs.values() if job.state in states]
        for job in jobs:
            self.cancel(job.file.name.partition("-")[0])

    def remove(self, entry: StoredDocument) -> None:
        """Remove an uploaded document: delete its file, which the library follows."""
        origin, name = str(entry.metadata.get("origin", "")), entry.metadata.get("name", entry.id)
        file = upload_path(self.reader.folder, origin)
        if file is None:
            raise RequestRefused(
                409,
                f"{name} was read from a file of your own, which Eddy never deletes: delete it there, or take the "
                f"document out with: eddy-demo library remove {entry.id}",
            )
        with self._changed:
            self._jobs.pop(_absolute(file), None)
            for job in self._jobs.values():
                job.older = "" if job.older == entry.id else job.older
        self._delete(origin)

    def follow(self, given: str) -> None:
        """Follow a folder.

        Raises:
            RequestRefused: It is none, or one that cannot be followed.
        """
        path = Path(os.path.expanduser(given.strip()))
        if not path.is_absolute():
            raise RequestRefused(400, f"type the whole path, such as {Path.home() / 'Documents'}, not {given!r:.80}")
        if not path.is_dir():
            raise RequestRefused(404, f"there is no folder {path} on this machine")
        path, own = path.resolve(), self.reader.folder.resolve()
        if path == path.parent:
            raise RequestRefused(400, f"{path} is all of this machine; name a folder of documents in it")
        if path.is_relative_to(own):
            raise RequestRefused(400, f"{path} belongs to the library itself; name a folder of documents")
        root, most = Root(path), self.limits.watched_folders
        root.retry.add(root.real_path)
        with self._changed:
            if around := next((other for other in self._followed if path.is_relative_to(other)), None):
                raise RequestRefused(409, f"{path} is watched already{'' if around == path else f', with {around}'}")
            if len(self._followed) >= most:
                raise RequestRefused(409, f"{most} folders are watched already; stop watching one")
            self._followed[path] = Followed(root)
            self._save()
        self._request(path)

    def unfollow(self, given: str) -> None:
        """Follow a folder no more; its documents stay."""
        with self._changed:
            if self._followed.pop(Path(given), None) is None:
                raise RequestRefused(404, f"{given!r:.200} is not watched any more")
            self._urgent = True
            self._save()
        self.notify()

    def rebuild(self, model: str) -> None:
        """Make the library anew with the method that is recommended for a model."""
        self.model, self._rebuild_failed = model, False
        self.notify()

    def notify(self) -> None:
        """Announce a change to all who wait for one."""
        with self._changed:
            self._changed.notify_all()
        self._signal.announce()

    def _find(self, digest: str) -> Job | None:
        with self._changed:
            return next((job for job in self._jobs.values() if job.file.name.startswith(f"{digest}-")), None)

    def _delete(self, origin: str) -> None:
        delete_upload(self.reader.folder, origin)
        self._urgent = True
        self._request(self.uploads.folder)

    def _request(self, root: Path) -> None:
        """Request that the changes of a folder are read, if the library can be written to."""
        folder = self.reader.folder
        with self._changed:
            if os.access(folder, os.W_OK) or not folder.exists():
                self._changed_roots[root] = None
        self.notify()

    def _save(self) -> None:
        """Write which folders are followed."""
        self.reader.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.reader.folder / FOLDERS_FILE) as file:
            file.write(json.dumps([str(path) for path in self._followed], ensure_ascii=False).encode())

    # --- The thread that notices changes

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                for changed, gone in watch(
                    lambda: [self.uploads.folder, *self._followed], self.reader.folder, self._stop
                ):
                    self._note(changed, gone)
            except Exception as error:
                for followed in list(self._followed.values()):
                    followed.problem = error_message(error)
                self.notify()
                self._stop.wait(_RETRY_SECONDS)

    def _note(self, changed: set[Path], gone: set[Path]) -> None:
        if self.uploads.folder in changed:
            self._request(self.uploads.folder)
        for path, followed in list(self._followed.items()):
            if path in gone and followed.state != "gone":
                followed.state, followed.problem = "gone", ""
                self.notify()
            elif path in changed or (followed.problem and time.monotonic() - followed.failed > _RETRY_SECONDS):
                followed.state = "waiting" if followed.state in ("gone", "watching") else followed.state
                self._request(path)

    # --- The thread that works

    def _run(self) -> None:
        try:
            self.reader.load()
        except Exception as error:
            self.reader.fail(error_message(error))
            self.notify()
            return
        self.notify()
        while not self._stop.is_set():
            try:
                self._work()
            except Interruption:
                continue
            except IndexInUse as error:
                self._show_other(error)
            except Exception as error:  # the disk is full, a device fails
                self._pause(error_message(error))

    def _work(self) -> None:
        """Do what is most urgent."""
        self._urgent = False
        with self._changed:
            roots = {self.uploads.folder: self._files, **{path: each.root for path, each in self._followed.items()}}
            self._changed_roots = {path: None for path in self._changed_roots if path in roots}
            root = next((root for path, root in roots.items() if path in self._changed_roots), None)
            if root is None and not self._rebuild_due():
                self._changed.wait(_BUSY_SECONDS)
                if self._changed_roots or self._stop.is_set():
                    return
        if root is not None:
            self._sync(root)
        elif self._rebuild_due():
            self._rebuild()
        else:
            self._check_library()

    def _rebuild_due(self) -> bool:
        is_begun = self.reader.settings.next is not None and self.reader.index is not None
        return bool(self.model) or (is_begun and not self._rebuild_failed)

    def _sync(self, root: Root) -> None:
        """Read a part of what has changed in a folder, uploads first; if that is much, the rest is requested again."""
        followed = self._followed.get(root.path)
        self._changed_roots.pop(root.path, None)
        version = self.reader.version
        try:
            with self._locked():  # before files are read in vain
                pass
            options: dict[str, Any] = {"limits": self.limits, "check": self.check, "batched": True}
            result = sync(self.reader.folder, [root], self._write, self._report, locked=self._locked, **options)
        except NothingToRead:  # `watch` tells when it is there again
            return
        except BaseException as error:
            self._put_back()
            if followed is None or isinstance(error, (IndexInUse, Interruption)):
                self._changed_roots[root.path] = None
                raise
            if not isinstance(error, Exception):
                raise
            followed.problem, followed.failed, followed.state = error_message(error), time.monotonic(), "watching"
            self.notify()
            return
        if result.missing and self.reader.version == version:
            self.reader.mark_changed()
        if followed is not None:
            followed.left, followed.problem, followed.file = len(result.read.deferred), "", ""
            followed.state = "waiting" if result.read.deferred else "watching"
        else:
            self._drop_missing(set(result.read.versions) | result.read.deferred)
        if result.changed:
            self._rebuild_failed = False
        if result.read.deferred:
            self._changed_roots[root.path] = None
        self.notify()

    def _write(self, documents: list[Document], _: ReadResult, progress: Progress) -> Failures:
        reader = self.reader

        def written_too(characters: float, written: int) -> None:
            if written:
                reader.open_new()
            progress(characters, written)

        try:
            failures = ingest(reader.folder, reader.settings, reader.embedder, documents, written_too)[1]
        finally:
            reader.open_new()
        reader.open()
        return failures

    def _report(self, report: FileReport) -> None:
        """Show what becomes of a file; one that is in the library from before is not listed."""
        with self._changed:
            followed = next((each for each in self._followed.values() if each.root.holds(report.path)), None)
            if followed is not None:
                if report.state in ("reading", "embedding"):
                    share = f", {report.share:.0%}" if report.state == "embedding" else ""
                    name = os.path.relpath(report.path, followed.root.real_path)
                    followed.state, followed.file = report.state, f"{name}{share}"
                return
            is_new = report.state == "failed" or (report.state == "reading" and not self._has_document(report.path))
            if report.path in self._jobs or is_new:
                self._report_job(self._jobs.setdefault(report.path, Job(Path(report.path))), report)
        if report.state != "done":
            self._signal.announce()

    def _has_document(self, path: str) -> bool:
        """Whether the library has a file's document, which is read again only if it has changed."""
        return self.reader.entry(document_key(f"{FILES_FOLDER}/{os.path.basename(path)}")) is not None

    def _report_job(self, job: Job, report: FileReport) -> None:
        if job.state in _FINISHED:
            return
        if job.state != report.state:
            job.state, job.began, job.left = report.state, time.monotonic(), None
        job.message, job.done, job.notes = report.message, report.share, report.notes
        if 0 < report.share < 1:
            job.left = (time.monotonic() - job.began) * (1 - report.share) / report.share
        if job.state == "done":
            job.document, name = report.document, shown_name(job.file.name)
            same = [each for each in self.reader.entries() if each.metadata.get("name") == name]
            uploads = [each.id for each in same if upload_path(self.reader.folder, str(each.metadata["origin"]))]
            job.older = next((id_ for id_ in uploads if id_ != job.document), "")
            self.reader.mark_changed()

    def _drop_missing(self, there: set[str]) -> None:
        """Drop files that somebody else deleted."""
        with self._changed:
            for path in [path for path, job in self._jobs.items() if job.state not in _FINISHED]:
                if path not in there and not os.path.exists(path):
                    del self._jobs[path]

    def _put_back(self) -> None:
        """Let the files in work wait again."""
        with self._changed:
            for path, job in self._jobs.items():
                if job.state in ("reading", "embedding"):
                    self._jobs[path] = Job(job.file)
            for followed in self._followed.values():
                followed.state = "waiting" if followed.state in ("reading", "embedding") else followed.state

    def check(self) -> None:
        """Interrupt the work in progress if something more urgent waits."""
        if self._urgent or self._stop.is_set():
            raise Interruption

    def _show_other(self, error: IndexInUse) -> None:
        """Show what the process does that writes; work waits for it, and the library answers meanwhile."""
        reader = self.reader
        reader.check_for_changes()
        if reader.settings.next is None:
            self._pause(error_message(error))
            return
        self.deepening, self._others_rebuild = reader.settings.deepens, True
        self.rebuilding = read_state(reader.folder).progress
        what = "reading the library more closely" if self.deepening else "making the library anew"
        waits = any(job.state not in (*_FINISHED, "failed") for job in self._jobs.values()) or self._followed
        self._pause(f"Another process is {what}. What waits here is done after that." if waits else "")

    def _pause(self, reason: str) -> None:
        self.busy = reason
        self.notify()
        with self._changed:
            self._changed.wait(_BUSY_SECONDS)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the library; start over if another process has replaced it."""
        with lock_library(self.reader.folder):
            if self.reader.check_for_changes():
                self._read_all_again()
                raise Interruption
            if self._others_rebuild:
                self._others_rebuild, self.rebuilding = False, None
            self.busy = ""
            yield

    def _read_all_again(self) -> None:
        """Read all files again, since another library has taken the place of the one that had them."""
        with self._changed:
            for root in (self._files, *(each.root for each in self._followed.values())):
                root.settled = {}
                self._changed_roots[root.path] = None

    def _check_library(self) -> None:
        """Notice what other processes have written, and report if the library cannot be read."""
        problem = ""
        try:
            if self.reader.check_for_changes():
                self._read_all_again()
        except Exception as error:
            problem = error_message(error)
        if problem != self._read_error:
            self.busy = problem if problem or self.busy == self._read_error else self.busy
            self._read_error = problem
            self.notify()

    def _rebuild(self) -> None:
        """Read the library more closely, or make it anew; files that wait come first, and so does another model."""
        reader, model = self.reader, self.model

        def report_progress(progress: RebuildProgress) -> None:
            self.rebuilding = progress
            self._signal.announce()
            self.check()
            if self._changed_roots or self.model != model:
                raise Interruption

        try:
            with self._locked():
                stored = reader.settings
                settings = next_settings(stored, Choices(model)) if model else stored.next
                if settings is not None:
                    self.deepening = stored.deepens and settings.model == stored.model
                    self.rebuilding = read_state(reader.folder).progress
                    self.notify()
                    rebuild_library(reader.folder, settings, reader.begin_rebuild(settings), report_progress)
            reader.open()
        except IndexInUse:
            raise
        except Exception as error:
            what = "read more closely" if self.deepening else "made anew"
            self.busy, self._rebuild_failed = f"The library could not be {what}: {error_message(error)}", True
        self.rebuilding = None
        reader.end_rebuild()
        self.model = "" if self.model == model else self.model  # another one was asked for meanwhile
        self.notify()


def _absolute(file: Path) -> str:
    return Path(os.path.realpath(file.parent), file.name).as_posix()


def rebuild_data(progress: RebuildProgress, deepening: bool) -> dict[str, Any]:
    """Return what the page shows of a rebuild."""
    speed, left = progress.speed, progress.left
    return {
        "done": round(progress.done, 4),
        "left": None if left is None else round(left, 1),
        "speed": None if speed is None else round(speed),
        "deepening": deepening,
    }
