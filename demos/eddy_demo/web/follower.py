"""The only thread that writes: it brings the library to uploads and followed folders, and makes it anew."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chroma_eddy import Document, IndexInUse, StoredDocument
from eddy_demo.display_text import printable
from eddy_demo.errors import error_message
from eddy_demo.library.library import (
    Failures,
    Progress,
    RebuildProgress,
    delete_upload,
    ingest,
    lock_library,
    read_progress,
    rebuild_library,
)
from eddy_demo.library.settings import FILES_FOLDER, FOLDERS_FILE, upload_path
from eddy_demo.library.sync import FileReport, Root, shown_name, sync, watch
from eddy_demo.web.http import ChangeSignal, Limits
from eddy_demo.web.library_reader import LibraryReader
from eddy_demo.web.uploads import Uploads
from eddy_embed.integrations.http_guard import RequestRefused
from eddy_embed.utils.atomic_files import atomic_write
from readers_eddy.content import NothingToRead
from readers_eddy.documents import document_key, file_digest, list_other_types, list_skipped

_BUSY_SECONDS = 2.0
"""Time until a retry after a failure, and between checks for other processes' changes."""
_RETRY_SECONDS = 30.0
"""Time after which folders are watched again that could not be."""
_LISTED = 50
"""Number of uploaded files that the page lists."""
_SHOWN = 50
"""Number of files whose errors the page shows, for each folder."""


class Interruption(BaseException):
    """The work in progress is left for something more urgent; no error of that work."""


@dataclass
class Followed(Root):
    """A followed folder and what the page shows of it."""

    state: str = "waiting"  # or "reading", "embedding", "watching", "gone"
    file: str = ""  # that is in work
    left: int = 0  # changed files that come after those in work
    problem: str = ""  # why it could not be read the last time
    failed: float = 0.0  # when that was

    def as_data(self) -> dict[str, Any]:
        """Return the values that the page shows."""
        lines = list_skipped([skipped for file in self.skipped.values() for skipped in file])
        lines = [self.problem, *lines] if self.problem else lines
        return {
            "path": str(self.path),
            "state": self.state,
            "file": printable(self.file),
            "left": self.left,
            "files": self.files,
            "skipped": [printable(line) for line in lines[:_SHOWN]],
            "more": max(len(lines) - _SHOWN, 0),
            "others": printable(list_other_types(self.other_types)) if self.other_types else "",
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
        self._files = Followed(self.uploads.folder)
        self._followed: dict[Path, Followed] = {}
        self._jobs: dict[str, FileReport] = {}  # uploads on their way into the library, by absolute path
        self._older: dict[str, str] = {}  # by a file's path, the id of another uploaded document of the same name
        self._changed_roots: dict[Path, None] = {}
        self._failure = self._unwatched = ""  # why the library was not made anew, and why no changes are noticed
        self._urgent = False
        self._signal, self._stop, self._changed = changes, threading.Event(), threading.Condition(threading.RLock())
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._run, self._watch)]

    def start(self, follows: bool) -> None:
        """Start the thread; `follows` the folders that an earlier server followed."""
        with suppress(OSError, ValueError, RecursionError, TypeError):
            stored = json.loads((self.reader.folder / FOLDERS_FILE).read_text(encoding="utf-8"))
            self._followed = {Path(path): Followed(Path(path)) for path in stored if follows}
        self._request(self.uploads.folder)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the work in progress; the next server goes on."""
        self._stop.set()
        self.notify()
        for thread in self._threads:
            thread.join(30)

    @property
    def is_writable(self) -> bool:
        """Whether the library can be written to, or made."""
        return os.access(self.reader.folder, os.W_OK) or not self.reader.folder.exists()

    # --- For the routes

    def snapshot(self) -> dict[str, Any]:
        """Return everything that the page shows of the work."""
        with self._changed:
            jobs = [job for job in self._jobs.values() if job.state != "done"]
            jobs += [job for job in reversed(self._jobs.values()) if job.state == "done"]
            folders = [each.as_data() for each in self._followed.values()]
        rebuilding, deepens = self.rebuilding, self.reader.settings.deepens
        return {
            "jobs": [self._job_data(job) for job in jobs[:_LISTED]],
            "more": max(len(jobs) - _LISTED, 0),
            "folders": folders,
            "busy": self.busy or self._failure or self._unwatched,
            "rebuilding": None if rebuilding is None else asdict(rebuilding) | {"deepening": deepens},
            "ready": self.reader.ready,
            "error": self.reader.error,
            "library": self.reader.version,
        }

    def _job_data(self, job: FileReport) -> dict[str, Any]:
        return {
            "id": _job_id(job),
            "name": shown_name(os.path.basename(job.path)),
            "state": job.state,
            "message": printable(job.message),
            "done": round(job.share, 4),
            "document": job.document,
            "older": self._older.get(job.path, ""),
            "notes": [printable(note) for note in job.notes],
        }

    def accept(self, part: Path, digest: str, name: str) -> str:
        """Save a received file, unless its bytes are there already; return its state."""
        file, is_new = self.uploads.keep(part, digest, name)
        path, known_name = self._path(file.name), shown_name(file.name)
        entry = None if is_new else self.reader.entry(document_key(self._origin(path)))
        with self._changed:
            self._older.pop(path, None)
            if entry is not None:
                known = "already in the library" + ("" if known_name == name else f" as {known_name}")
                self._jobs[path] = FileReport(path, "done", known, document=entry.id)
            elif path not in self._jobs or self._jobs[path].state in ("failed", "done"):
                self._jobs[path] = FileReport(path, "waiting")
                self._files.retry.add(path)
        self._request(self.uploads.folder)
        return "waiting" if entry is None else "done"

    def cancel(self, id_: str) -> bool:
        """Delete a listed file that is not in the library yet, or drop a finished one; return whether there was one."""
        with self._changed:
            job = next((job for job in self._jobs.values() if _job_id(job) == id_), None)
            if job is None:
                return False
            del self._jobs[job.path]
        if job.state != "done":
            self._delete(self._origin(job.path))
        self.notify()
        return True

    def clear(self, failed: bool = False) -> None:
        """Drop the finished files from the list, or delete the failed ones."""
        with self._changed:
            jobs = [job for job in self._jobs.values() if job.state == ("failed" if failed else "done")]
        for job in jobs:
            self.cancel(_job_id(job))

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
            self._jobs.pop(self._path(file.name), None)
            self._older = {path: id_ for path, id_ in self._older.items() if id_ != entry.id}
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
        root = Followed(path)
        root.retry.add(root.real_path)
        with self._changed:
            if around := next((other for other in self._followed if path.is_relative_to(other)), None):
                raise RequestRefused(409, f"{path} is watched already{'' if around == path else f', with {around}'}")
            self._followed[path] = root
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

    def notify(self) -> None:
        """Announce a change to all who wait for one."""
        with self._changed:
            self._changed.notify_all()
        self._signal.announce()

    def _path(self, file: str) -> str:
        """Return the absolute path of an uploaded file."""
        return f"{self._files.real_path}/{file}"

    def _origin(self, path: str) -> str:
        """Return what the library calls an uploaded file."""
        return FILES_FOLDER + path.removeprefix(self._files.real_path)

    def _delete(self, origin: str) -> None:
        delete_upload(self.reader.folder, origin)
        self._urgent = True
        self._request(self.uploads.folder)

    def _request(self, root: Path) -> None:
        """Request that the changes of a folder are read, if the library can be written to."""
        with self._changed:
            if self.is_writable:
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
                self._unwatched = error_message(error)
                self.notify()
                self._stop.wait(_RETRY_SECONDS)

    def _note(self, changed: set[Path], gone: set[Path]) -> None:
        self._unwatched = ""
        if self.uploads.folder in changed:
            self._request(self.uploads.folder)
        for path, followed in list(self._followed.items()):
            if path in gone and followed.state != "gone":
                followed.state = "gone"
                self.notify()
            elif path in changed or (followed.problem and time.monotonic() - followed.failed > _RETRY_SECONDS):
                followed.state = "waiting" if followed.state in ("gone", "watching") else followed.state
                self._request(path)

    # --- The thread that works

    def _run(self) -> None:
        self.reader.load()
        self.notify()
        if self.reader.error:
            return
        while not self._stop.is_set():
            try:
                try:
                    self._work()
                except IndexInUse as error:
                    self._show_other(error)
            except Interruption:
                continue
            except Exception as error:  # the disk is full, a device fails
                self._pause(error_message(error))

    def _work(self) -> None:
        """Do what is most urgent."""
        self._urgent = False
        with self._changed:
            roots = {self.uploads.folder: self._files, **self._followed}
            waiting = [path for path in self._changed_roots if path in roots]
            self._changed_roots = dict.fromkeys(waiting)
            waiting.sort(key=lambda path: path != self.uploads.folder)
            root = roots[waiting[0]] if waiting else None
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
        return self.reader.settings.next is not None and self.reader.index is not None and not self._failure

    def _sync(self, root: Followed) -> None:
        """Read a part of what has changed in a folder, uploads first; if that is much, the rest is requested again."""
        self._changed_roots.pop(root.path, None)
        version = self.reader.version
        try:
            with self._locked():  # before files are read in vain
                pass
            options: dict[str, Any] = {"limits": self.limits, "check": self.check, "batched": True}
            report = partial(self._report, root)
            result = sync(self.reader.folder, [root], self._write, report, locked=self._locked, **options)
        except NothingToRead:  # `watch` tells when it is there again
            return
        except BaseException as error:
            if root is self._files or isinstance(error, (IndexInUse, Interruption)) or not isinstance(error, Exception):
                self._changed_roots[root.path] = None
                raise
            root.problem, root.failed, root.state = error_message(error), time.monotonic(), "watching"
            self.notify()
            return
        finally:
            self._put_back()
        if result.missing and self.reader.version == version:
            self.reader.mark_changed()
        root.left, root.file, root.problem = len(result.read.deferred), "", ""
        root.state = "waiting" if result.read.deferred else "watching"
        if result.changed:
            self._failure = ""
        if result.read.deferred:
            self._changed_roots[root.path] = None
        self.notify()

    def _write(self, documents: list[Document], progress: Progress) -> Failures:
        reader = self.reader

        def written_too(characters: float, written: int) -> None:
            if written and reader.index is None:
                reader.open()
            progress(characters, written)

        try:
            return ingest(reader.folder, reader.settings, reader.embedder, documents, written_too)[1]
        finally:
            reader.open()

    def _report(self, root: Followed, report: FileReport) -> None:
        """Show what becomes of a file; an upload that is in the library from before is not listed."""
        self._signal.announce()
        if root is not self._files:
            if report.state in ("reading", "embedding"):
                share = f", {report.share:.0%}" if report.state == "embedding" else ""
                root.state, root.file = report.state, f"{os.path.relpath(report.path, root.real_path)}{share}"
            return
        with self._changed:
            job = self._jobs.get(report.path)
            is_listed = report.state == "failed" if job is None else job.state != "done"
            if job is None and report.state == "reading":
                is_listed = self.reader.entry(document_key(self._origin(report.path))) is None
            if not is_listed:
                return
            self._jobs[report.path] = report
            if report.state == "done":
                self._older[report.path] = self._find_older(report)
                self.reader.mark_changed()

    def _find_older(self, report: FileReport) -> str:
        """Return the id of another uploaded document that is called like a file's; "" without one."""
        name, folder = shown_name(os.path.basename(report.path)), self.reader.folder
        same = [entry for entry in self.reader.entries() if entry.metadata["name"] == name]
        uploads = (entry.id for entry in same if upload_path(folder, str(entry.metadata["origin"])))
        return next((id_ for id_ in uploads if id_ != report.document), "")

    def _put_back(self) -> None:
        """Let the files in work wait again."""
        with self._changed:
            for path, job in [*self._jobs.items()]:
                if not os.path.exists(path):  # somebody else has deleted it
                    del self._jobs[path]
                elif job.state in ("reading", "embedding"):
                    self._jobs[path] = FileReport(path, "waiting")
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
            self.rebuilding = None
            self._pause(error_message(error))
            return
        self.rebuilding = read_progress(reader.folder)
        what = "reading the library more closely" if reader.settings.deepens else "making the library anew"
        with self._changed:
            waits = any(job.state not in ("done", "failed") for job in self._jobs.values()) or self._followed
        self._pause(f"Another process is {what}. What waits here is done after that." if waits else "")

    def _pause(self, reason: str) -> None:
        """Show why work cannot go on, and wait a while."""
        self.busy = reason
        self.notify()
        with self._changed:
            self._changed.wait(_BUSY_SECONDS)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with lock_library(self.reader.folder):
            self.reader.check_for_changes()
            self.busy, self.rebuilding = "", None
            yield

    def _check_library(self) -> None:
        """Notice what other processes have written."""
        index = self.reader.index
        self.reader.check_for_changes()
        if self.reader.index is not index:  # another process has made it anew
            self._failure = ""
        if self.busy or self.rebuilding:
            self.busy, self.rebuilding = "", None
            self.notify()

    def _rebuild(self) -> None:
        """Read the library more closely, or make it anew; files that wait come first."""
        reader = self.reader

        def report_progress(progress: RebuildProgress) -> None:
            self.rebuilding = progress
            self._signal.announce()
            self.check()
            if self._changed_roots:
                raise Interruption

        try:
            with self._locked():
                if (settings := reader.settings.next) is not None:
                    self.rebuilding = read_progress(reader.folder)
                    self.notify()
                    rebuild_library(reader.folder, settings, reader.begin_rebuild(settings), report_progress)
                    reader.open()
        except IndexInUse:
            raise
        except Exception as error:
            what = "read more closely" if reader.settings.deepens else "made anew"
            self._failure = f"The library could not be {what}: {error_message(error)}"
        self.rebuilding = None
        reader.end_rebuild()
        self.notify()


def _job_id(job: FileReport) -> str:
    """Return the digest of an upload's bytes; of a file that somebody else put into the folder, that of its path."""
    file = os.path.basename(job.path)
    return file.partition("-")[0] if file != shown_name(file) else file_digest(job.path.encode())
