"""Keep a library like folders: what changes in them is read, what is removed from them leaves it.

The command line and the page share `sync`. The folders and the index say what is to be done, so that after a kill the
same call does the rest. `read.json` only saves reading a file again: one that the library has, or that cannot be read.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import watchfiles

from chroma_eddy import Document, StoredDocument
from eddy_demo.errors import DemoError
from eddy_demo.library.library import Failures, Progress, read_entries, remove_documents, to_index_document
from eddy_demo.library.settings import FILES_FOLDER, READ_FILE
from eddy_embed.utils.atomic_files import atomic_write
from readers_eddy.content import ReadingLimits
from readers_eddy.documents import (
    FileVersion,
    ReadResult,
    SkippedFile,
    SourceDocument,
    file_version,
    read_changed,
)
from readers_eddy.formats import DOCUMENT_SUFFIXES, suffix_of

BATCH_FILES = 64
"""Number of files that are read and written together on the page."""
_BATCH_CHARACTERS = 20_000_000
"""Characters from which a batch takes no more files."""
_TICK_MS = 1000
"""Time after which folders that were added, or are there again, are noticed."""
_QUIET_MS = 200
"""Time without a change after which the changes are read, since a file may be written in pieces."""
_DIGEST = re.compile(r"[0-9a-f]{32}-(?=.)")
"""Beginning of an uploaded file's name on the disk."""


@dataclass(frozen=True)
class FileReport:
    """What became of a file."""

    path: str
    state: str  # "reading", "embedding", "done" or "failed"
    message: str = ""
    share: float = 0.0  # that is embedded, 0 to 1
    document: str = ""  # its id
    notes: tuple[str, ...] = ()


Report = Callable[[FileReport], None]
Write = Callable[[list[Document], Progress], Failures]
"""Embeds and writes documents, and calls the progress meanwhile."""


@dataclass
class Root:
    """A folder, or a file, that a library is kept like, and what is known of it since the process began."""

    path: Path
    identity: list[int] | None = None  # of the folder in which files of the library were last seen
    retry: set[str] = field(default_factory=set)  # files, or this folder, to be read again though they could not be
    settled: dict[str, FileVersion] = field(default_factory=dict)  # files done with, which the library does not say
    skipped: dict[str, list[SkippedFile]] = field(default_factory=dict)  # until the file is read or removed
    other_types: Counter[str] = field(default_factory=Counter)  # files that are not read, by suffix or ""
    files: int = 0  # that are read or skipped

    @cached_property
    def real_path(self) -> str:
        """Absolute path, behind links."""
        return Path(os.path.realpath(self.path)).as_posix()

    def holds(self, path: str) -> bool:
        """Whether an absolute path is this one, or below it."""
        return path == self.real_path or path.startswith(f"{self.real_path}/")

    def may_remove(self, found: set[str], known: set[str], may_be_empty: bool) -> bool:
        """Whether known files that are not found were removed, and are not on a disk that is not there.

        Such a folder is missing, empty, or another one than before, in which most known files are not.
        """
        if not self.path.is_dir():
            return self.path.exists()
        identity = folder_identity(self.path)
        is_same = identity == self.identity or 2 * len(found & known) > len(known)
        if not is_same or not (found or may_be_empty):
            return False
        self.identity = identity
        return True

    def note(self, read: ReadResult, memory: _Memory) -> None:
        """Note what was skipped below this path, and which files need not be read again by this process."""
        files = {path for path in read.versions if self.holds(path)}
        new = defaultdict[str, list[SkippedFile]](list)
        for skipped in read.skipped:
            if self.holds(skipped.origin) or not skipped.origin:
                new[skipped.origin].append(skipped)
        kept = {path: before for path, before in self.skipped.items() if path in read.unchanged | read.deferred}
        self.skipped = dict(sorted((memory.skipped(files) | kept | new).items()))
        self.files, self.other_types = len(files), read.other_types
        self.settled = {path: read.versions[path] for path in files if _has_rows(path) or path in self.skipped}


@dataclass
class SyncResult:
    """What was done."""

    read: ReadResult
    sources: dict[str, SourceDocument]  # what was read, by id
    changed: list[Document]
    unchanged: int  # documents
    failures: Failures
    missing: dict[str, str]  # names of documents whose files do not exist any more, by id


def shown_name(name: str) -> str:
    """Return what an uploaded file is called, without the digest in its name."""
    return _DIGEST.sub("", name, count=1)


def sync(
    library: Path,
    roots: Sequence[Root],
    write: Write,
    report: Report = lambda _: None,
    *,
    limits: ReadingLimits | None = None,
    check: Callable[[], None] = lambda: None,
    batched: bool = False,
    remove: bool = True,
    locked: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> SyncResult:
    """Bring a library to what is in files and folders.

    Args:
        library: The folder of the library.
        roots: What it is kept like.
        write: Embeds and writes the documents that the library lacks or has in another version.
        report: Called with what becomes of each file.
        limits: Of reading one file.
        check: Called regularly; its exception ends the call, and another call goes on.
        batched: Whether to leave files to another call once there is enough to write.
        remove: Whether documents whose files do not exist any more leave the library.
        locked: Locks the library while it is written to; left out, the caller holds its lock.

    Raises:
        NothingToRead: A root does not exist, or is a file of another type.
    """
    limits, retry = limits or ReadingLimits(), {path for root in roots for path in root.retry}
    memory, entries = _Memory(library), read_entries(library)
    paths = {id_: memory.path(str(entry.metadata["origin"])) for id_, entry in entries.items()}
    files = {paths[id_]: id_ for id_, entry in entries.items() if entry.complete}
    memory.identify(roots, paths.values())
    known = {file: version for root in roots for file, version in root.settled.items() if not _is_below(file, retry)}
    known |= memory.versions(roots, files.keys(), retry)

    def begin(path: str, read: ReadResult) -> bool:
        size = sum(len(document.text) for document in read.documents)
        if batched and (len(read.versions) - len(read.unchanged) >= BATCH_FILES or size >= _BATCH_CHARACTERS):
            return False
        report(FileReport(path, "reading"))
        return True

    read = read_changed([root.path for root in roots], known, limits, library, check, begin)
    if batched:
        _forget_changed(read)
    read.skipped[:] = [skip if skip.is_row else replace(skip, name=shown_name(skip.name)) for skip in read.skipped]
    sources, read_from = dict[str, SourceDocument](), dict[str, str]()
    for path, source in (_identified(source, memory) for source in read.documents):
        sources[source.key], read_from[source.key] = source, path
    documents = [to_index_document(source) for source in sources.values()]
    changed = [each for each in documents if each.id not in entries or entries[each.id].digest != each.digest]
    failures = Failures()
    gone = [id_ for id_ in _missing(library, roots, read, paths) if id_ not in sources]
    missing = {id_: str(entries[id_].metadata["name"]) for id_ in gone}
    if changed or (missing and remove):
        with locked():
            if changed:
                notes = {id_: source.notes for id_, source in sources.items()}
                failures = write(changed, _progress(changed, read_from, notes, report, check))
            if missing and remove:
                missing = {id_: name for id_, name in missing.items() if _is_gone(paths[id_])}  # and not back since
                remove_documents(library, missing)
    memory.update(roots, read, {read_from[id_] for id_ in failures})
    for id_, error in failures.items():
        reason = f"it cannot be embedded: {error}"
        read.skipped.append(SkippedFile(sources[id_].name, reason, origin=read_from[id_]))
    for root in roots:
        root.note(read, memory)
        root.retry -= retry
    unchanged = {path: (id_, ()) for path, id_ in files.items() if path in read.unchanged and id_ not in missing}
    written = {read_from[id_]: (id_, source.notes) for id_, source in sources.items() if id_ not in failures}
    _report_ends(unchanged | written, roots, report)
    return SyncResult(read, sources, changed, len(unchanged) + len(sources) - len(changed), failures, missing)


def _identified(source: SourceDocument, memory: _Memory) -> tuple[str, SourceDocument]:
    """Return the path of a document's file, and the document, an upload by its own name and origin."""
    path = source.origin.removesuffix(f"#{source.row}") if source.row else source.origin
    origin, name = memory.origin(source.origin), source.name if source.row else shown_name(source.name)
    return path, source if origin == source.origin else replace(source, origin=origin, name=name)


def _forget_changed(read: ReadResult) -> None:
    """Forget files that failed because they were deleted or replaced meanwhile; another call reads them as they are."""
    for skipped in [skipped for skipped in read.skipped if skipped.origin]:
        version = read.versions.get(skipped.origin)  # None for what was not there, or is no file, as a pipe
        is_file, is_there = os.path.isfile(skipped.origin), os.path.lexists(skipped.origin)
        if not is_there or (is_file and version != file_version(os.stat(skipped.origin))):
            read.skipped.remove(skipped)
            read.versions.pop(skipped.origin, None)


def _report_ends(done: Mapping[str, tuple[str, tuple[str, ...]]], roots: Sequence[Root], report: Report) -> None:
    """Report files that are in the library, with the documents' ids and notes, and those that cannot be read."""
    for path, (id_, notes) in done.items():
        report(FileReport(path, "done", "", 1.0, id_, notes))
    for root in roots:
        for path, skipped in root.skipped.items():
            if not _is_below(path, root.retry):  # nobody has asked to try again meanwhile
                report(FileReport(path, "failed", skipped[0].reason))


def _progress(
    documents: Sequence[Document],
    paths: Mapping[str, str],
    notes: Mapping[str, tuple[str, ...]],
    report: Report,
    check: Callable[[], None],
) -> Progress:
    """Return what makes reports of the files of documents that are embedded one after another."""
    ends = list(accumulate(len(document.text) for document in documents))
    done = 0  # number of documents that are written

    def progress(characters: float, written: int) -> None:
        nonlocal done
        check()
        for document in documents[done:written]:
            report(FileReport(paths[document.id], "done", "", 1.0, document.id, notes[document.id]))
        done = max(done, written)
        for at in range(done, len(documents)):
            share = 1 - (ends[at] - characters) / max(len(documents[at].text), 1)
            if share <= 0:
                break
            report(FileReport(paths[documents[at].id], "embedding", "", min(share, 1.0)))

    return progress


def _missing(library: Path, roots: Sequence[Root], read: ReadResult, paths: Mapping[str, str]) -> Iterator[str]:
    """Yield ids of the library's documents, given with their paths, below the roots whose files, or rows, are gone."""
    kept = read.unchanged | read.deferred | {skipped.origin for skipped in read.skipped}
    for root in roots:
        below = {id_: path for id_, path in paths.items() if root.holds(path) or root.holds(_row_file(path))}
        there = {path for path in read.versions.keys() | read.deferred if root.holds(path)}
        known = {path if path in there else _row_file(path) or path for path in below.values()}
        if root.may_remove(there, known, may_be_empty=root.path == library / FILES_FOLDER):
            for id_, path in below.items():
                if _is_gone(path) and not (_row_file(path) in kept and Path(_row_file(path)).is_file()):
                    yield id_


def _is_gone(path: str) -> bool:
    """Whether there is no file; False where a folder lets nobody look."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def _has_rows(path: str) -> bool:
    """Whether each row of a file is a document."""
    return suffix_of(path) not in DOCUMENT_SUFFIXES


def _row_file(path: str) -> str:
    """Return the file of a row; "" of what is no row."""
    return path.rpartition("#")[0]


class _Memory:
    """What is known of folders and files from earlier calls, also of other processes: `read.json`.

    Of a folder, its identity; of a file that was read (no reason) or cannot be: size, time, name and reason.
    """

    def __init__(self, library: Path) -> None:
        self._file, self._uploads = library / READ_FILE, Path(os.path.realpath(library / FILES_FOLDER)).as_posix()
        self._folders, self._files, self._saved = dict[str, list[int]](), dict[str, list[Any]](), ""
        with suppress(OSError, ValueError, RecursionError, AttributeError, TypeError, KeyError):
            self._saved = self._file.read_text("utf-8")
            loaded = json.loads(self._saved)
            folders = {self.path(origin): identity for origin, identity in loaded["folders"].items()}
            files = {self.path(origin): [*values] for origin, values in loaded["files"].items() if len(values) == 4}
            self._folders, self._files = folders, files

    def path(self, origin: str) -> str:
        """Return the absolute path of an origin; that of an upload is below the library's folder, wherever that is."""
        return self._uploads + origin.removeprefix(FILES_FOLDER) if _is_below(origin, [FILES_FOLDER]) else origin

    def origin(self, path: str) -> str:
        """Return the origin of an absolute path."""
        return FILES_FOLDER + path.removeprefix(self._uploads) if _is_below(path, [self._uploads]) else path

    def identify(self, roots: Sequence[Root], stored: Collection[str]) -> None:
        """Tell which folders the library is kept like; `stored` are the files that it has."""
        for root in roots:
            root.identity = root.identity or self._folders.get(root.real_path)
            if root.identity is None and not any(root.holds(path) for path in stored):
                root.identity = folder_identity(root.path)
        self._save(roots)  # before a document is written, whose file may be gone after a kill

    def versions(self, roots: Sequence[Root], stored: Container[str], retry: set[str]) -> dict[str, FileVersion]:
        """Return the versions of files below the roots that are as they were, and need not be read again."""
        versions = {}
        for path, (size, time, _, reason) in self._files.items():
            is_known = not _is_below(path, retry) if reason else path in stored
            if is_known and any(root.holds(path) for root in roots):
                with suppress(OSError):
                    version = file_version(os.stat(path))
                    if [size, time] == [*version[1:3]]:
                        versions[path] = version
        return versions

    def skipped(self, paths: Collection[str]) -> dict[str, list[SkippedFile]]:
        """Return which of some files cannot be read."""
        files = {path: self._files[path][2:] for path in paths if path in self._files}
        return {path: [SkippedFile(name, reason, origin=path)] for path, (name, reason) in files.items() if reason}

    def update(self, roots: Sequence[Root], read: ReadResult, failures: set[str]) -> None:
        """Remember what was read, and what cannot be, but rows and failures; forget what is not there any more."""
        for path in [path for path in self._files if any(root.holds(path) for root in roots)]:
            if path not in read.unchanged | read.deferred:
                del self._files[path]
        problems = {skipped.origin: (skipped.name, skipped.reason) for skipped in read.skipped}
        for path in read.versions.keys() - read.unchanged - failures:
            if not _has_rows(path):
                self._files[path] = [*read.versions[path][1:3], *problems.get(path, ("", ""))]
        self._save(roots)

    def forget(self, origins: Iterable[str]) -> None:
        """Forget files, also their names."""
        for origin in origins:
            self._files.pop(self.path(origin), None)
        self._save([])

    def _save(self, roots: Sequence[Root]) -> None:
        self._folders |= {root.real_path: root.identity for root in roots if root.identity}
        tables = {"folders": self._folders, "files": self._files}
        made = json.dumps({n: {self.origin(path): each for path, each in table.items()} for n, table in tables.items()})
        if made != self._saved:
            # There may be no folder yet, or no room on the disk, which others say.
            with suppress(OSError), atomic_write(self._file) as file:
                file.write(made.encode())
                self._saved = made


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{folder}/") for folder in folders)


def forget_files(library: Path, entries: Iterable[StoredDocument]) -> None:
    """Forget the files of documents that were removed, also their names."""
    _Memory(library).forget(str(entry.metadata["origin"]) for entry in entries)


def watch(
    folders: Callable[[], Iterable[Path]], library: Path, stop: threading.Event
) -> Iterator[tuple[set[Path], set[Path]]]:
    """Yield the folders in which files may have changed, and those that are not there, after each change and second.

    A folder that is new among `folders`, or there again, comes first as changed. The library's own files do not count,
    but for uploaded ones, nor do hidden ones.

    Raises:
        DemoError: The system watches no more folders.
    """
    own, uploads = Path(os.path.realpath(library)), Path(os.path.realpath(library / FILES_FOLDER))
    while not stop.is_set():
        there, gone = _identities(folders())
        if not there:
            yield set(), gone
            stop.wait(_TICK_MS / 1000)
            continue
        roots = {folder: Path(os.path.realpath(folder)) for folder in there}

        def counts(change: watchfiles.Change, changed: str, roots: dict[Path, Path] = roots) -> bool:
            path = Path(changed)
            if change == watchfiles.Change.modified and suffix_of(path.name) is None:  # such as a log that grows
                return False
            is_own = path.is_relative_to(own) and not path.is_relative_to(uploads)
            return not is_own and any(_is_shown(path, root) for root in roots.values())

        changed = set(there)
        try:
            for found in watchfiles.watch(
                *roots.values(),
                watch_filter=counts,
                step=_QUIET_MS,
                rust_timeout=_TICK_MS,
                stop_event=stop,
                yield_on_timeout=True,
                ignore_permission_denied=True,
            ):
                paths = [Path(path) for _, path in found]
                changed |= {folder for folder, root in roots.items() if any(_is_shown(path, root) for path in paths)}
                now = _identities(folders())
                yield changed & now[0].keys(), now[1]
                changed = set()
                if now != (there, gone):
                    break
        except FileNotFoundError:  # it went meanwhile
            continue
        except (OSError, RuntimeError) as error:
            raise DemoError(f"the system cannot watch {', '.join(map(str, there))}: {error}") from None


def _is_shown(path: Path, root: Path) -> bool:
    """Whether a path is below a folder, and not in a hidden one."""
    return path.is_relative_to(root) and not any(part.startswith(".") for part in path.relative_to(root).parts)


def _identities(folders: Iterable[Path]) -> tuple[dict[Path, list[int]], set[Path]]:
    found = {folder: folder_identity(folder) for folder in folders}
    there = {folder: identity for folder, identity in found.items() if identity is not None}
    return there, found.keys() - there


def folder_identity(folder: Path) -> list[int] | None:
    """Return what tells a folder from another one at the same path, None if it is not there."""
    try:
        status = folder.stat()
        disk = os.statvfs(folder).f_fsid if hasattr(os, "statvfs") else 0
    except OSError:
        return None
    return [status.st_dev, status.st_ino, disk] if folder.is_dir() else None
