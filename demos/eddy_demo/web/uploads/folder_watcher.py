"""Folders of this machine that the page's library is kept like: which they are, what changes, what is told of it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chroma_eddy import IndexInUse
from eddy_demo.display_text import printable
from eddy_demo.library.ingest import Failures, changed_documents, ingest
from eddy_demo.library.settings import FOLDERS_FILE
from eddy_demo.library.watching import WatchedFolder, watch
from eddy_demo.web.errors import RequestRefused, error_message
from eddy_demo.web.library_reader import LibraryReader
from eddy_demo.web.limits import Limits
from eddy_demo.web.uploads.job_queue import JobQueue
from eddy_embed.utils.atomic_files import atomic_write
from readers_eddy.documents import ReadResult, SourceDocument, list_other_types, list_skipped
from readers_eddy.errors import NothingToRead

_RETRY_SECONDS = 30.0
"""Time after which a folder is read again that could not be."""
BATCH = 64
"""Number of files that are read and written together."""
_SHOWN = 50
"""Number of files whose errors the page shows, for each folder."""


class Interruption(BaseException):
    """The work in progress is put back for something more urgent; no error of that work."""


class _Stopped(BaseException):
    """The folder that is read is not watched any more."""


@dataclass
class FollowedFolder:
    """A folder and what the page shows of it."""

    known: WatchedFolder
    state: str = "waiting"  # or "reading", "embedding", "watching", "gone"
    done: float = 0.0  # share of the texts in work that is embedded
    left: int = 0  # changed files that come after those in work
    problem: str = ""  # why it could not be read the last time
    failed: float = field(default=0.0, repr=False)  # when that was

    def as_data(self) -> dict[str, Any]:
        """Return the values that the page shows."""
        lines = list_skipped([each for file in self.known.skipped.values() for each in file])
        others = self.known.other_types
        return {
            "path": str(self.known.path),
            "state": self.state,
            "done": round(self.done, 4),
            "left": self.left,
            "problem": printable(self.problem),
            "files": len(self.known.versions),
            "skipped": [printable(line) for line in lines[:_SHOWN]],
            "more": max(len(lines) - _SHOWN, 0),
            "others": printable(list_other_types(others)) if others else "",
        }


class FolderWatcher:
    """The watched folders of one library. Any thread may add and remove them; the writing thread reads them."""

    def __init__(self, jobs: JobQueue, reader: LibraryReader, limits: Limits) -> None:
        self._jobs, self._reader, self._limits = jobs, reader, limits
        self._library, self._most = reader.folder, limits.watched_folders
        self._folders: dict[Path, FollowedFolder] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="folders", daemon=True)

    def start(self) -> None:
        """Watch the folders that an earlier server watched."""
        with suppress(OSError, ValueError, RecursionError):
            stored = json.loads((self._library / FOLDERS_FILE).read_text(encoding="utf-8"))
            paths = [Path(each) for each in stored if isinstance(each, str)] if isinstance(stored, list) else []
            self._folders = {path: FollowedFolder(WatchedFolder(path)) for path in paths[: self._most]}
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; the next server goes on."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)

    # --- For the routes

    def add(self, given: str) -> None:
        """Watch a folder.

        Raises:
            RequestRefused: It is none, or one that cannot be watched.
        """
        path = Path(os.path.expanduser(given.strip()))
        if not path.is_absolute():
            raise RequestRefused(400, f"type the whole path, such as {Path.home() / 'Documents'}, not {given!r:.80}")
        if not path.is_dir():
            raise RequestRefused(404, f"there is no folder {path} on this machine")
        path, own = path.resolve(), self._library.resolve()
        if path == path.parent:
            raise RequestRefused(400, f"{path} is all of this machine; name a folder of documents in it")
        if path.is_relative_to(own):
            raise RequestRefused(400, f"{path} belongs to the library itself; name a folder of documents")
        with self._lock:
            if around := next((other for other in self._folders if path.is_relative_to(other)), None):
                raise RequestRefused(409, f"{path} is watched already{'' if around == path else f', with {around}'}")
            if len(self._folders) >= self._most:
                raise RequestRefused(409, f"{self._most} folders are watched already; stop watching one")
            self._keep({**self._folders, path: FollowedFolder(WatchedFolder(path))})

    def remove(self, given: str) -> None:
        """Watch a folder no more; its documents stay."""
        with self._lock:
            if Path(given) not in self._folders:
                raise RequestRefused(404, f"{given!r:.200} is not watched any more")
            self._keep({path: each for path, each in self._folders.items() if path != Path(given)})

    def snapshot(self) -> list[dict[str, Any]]:
        """Return all folders as the page shows them."""
        return [each.as_data() for each in self._folders.values()]

    # --- For the writing thread

    def read(self, path: Path, check: Callable[[], None], locked: Callable[[], AbstractContextManager[None]]) -> None:
        """Bring the library to what has changed in a folder; if that is much, the rest is requested again.

        Args:
            path: The folder; nothing is done if it is not watched any more.
            check: Raises what ends the work, which is then requested again.
            locked: Locks the library.
        """
        folder = self._folders.get(path)
        if folder is None:
            return
        try:
            rest = self._read(folder, check, locked)
        except (_Stopped, NothingToRead):  # whoever watches the folder notices that it is not there
            rest = False
        except (IndexInUse, Interruption):
            folder.state = "waiting"
            self._jobs.read_folder(path)
            raise
        except Exception as error:
            folder.problem, folder.failed = error_message(error), time.monotonic()
            rest = False
        finally:
            self._reader.open_new()
        folder.state = "waiting" if rest else "watching"
        if rest:
            self._jobs.read_folder(path)

    def _read(
        self, folder: FollowedFolder, check: Callable[[], None], locked: Callable[[], AbstractContextManager[None]]
    ) -> bool:
        """Read a part of what has changed; return whether there is more."""
        reader, limits, changed_rows = self._reader, self._limits, False

        def check_all() -> None:
            check()
            if self._folders.get(folder.known.path) is not folder:
                raise _Stopped

        def is_enough(result: ReadResult) -> bool:
            characters = sum(len(document.text) for document in result.documents)
            return len(result.versions) - len(result.unchanged) >= BATCH or characters >= limits.batch_characters

        def write(documents: Sequence[SourceDocument]) -> Failures:
            nonlocal changed_rows
            changed = changed_documents(reader.folder, documents)
            size = sum(len(document.text) for document in changed)

            def report_progress(characters: float, written: int) -> None:
                check_all()
                if written:
                    reader.open_new()
                folder.state, folder.done = "embedding", min(characters / max(size, 1), 1.0)
                self._jobs.notify()

            if not changed:
                return {}
            changed_rows = True
            return ingest(reader.folder, reader.settings, reader.embedder, changed, report_progress)[1]

        folder.state, folder.done = "reading", 0.0
        self._jobs.notify()
        result = folder.known.read(reader.folder, limits, check_all, is_enough)
        folder.left = len(result.deferred)
        with locked():
            removed = folder.known.keep_alike(reader.folder, result, write)
        folder.problem = ""
        if changed_rows:
            reader.open()
        elif removed:
            reader.mark_changed()
        return bool(result.deferred)

    def read_all_again(self) -> None:
        """Read all files again, since another library has taken the place of the one that had them."""
        for path, folder in list(self._folders.items()):
            folder.known.versions = {}
            self._jobs.read_folder(path)

    def _keep(self, folders: dict[Path, FollowedFolder]) -> None:
        self._library.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._library / FOLDERS_FILE) as file:
            file.write(json.dumps([str(path) for path in folders], ensure_ascii=False).encode())
        self._folders = folders
        self._jobs.notify()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for changed, gone in watch(lambda: list(self._folders), self._library, self._stop):
                    self._note(changed, gone)
            except Exception as error:
                for folder in list(self._folders.values()):
                    folder.problem = error_message(error)
                self._jobs.notify()
                self._stop.wait(_RETRY_SECONDS)

    def _note(self, changed: set[Path], gone: set[Path]) -> None:
        for path, folder in list(self._folders.items()):
            if path in gone and folder.state != "gone":
                folder.state, folder.problem = "gone", ""
                self._jobs.notify()
            elif path in changed or (folder.problem and time.monotonic() - folder.failed > _RETRY_SECONDS):
                folder.state = "waiting" if folder.state in ("gone", "watching") else folder.state
                self._jobs.read_folder(path)
