"""Keep a library like folders: what changes in them is read, what is removed from them leaves it."""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import watchfiles

from eddy_demo.errors import DemoError
from eddy_demo.library.ingest import Failures, missing_documents, remove_documents
from readers_eddy.documents import FileVersion, ReadResult, SkippedFile, SourceDocument, read_changed
from readers_eddy.limits import ReadingLimits

_TICK_MS = 1000
"""Time after which folders that were added, or are there again, are noticed."""
_QUIET_MS = 200
"""Time without a change after which the changes are read, since a file may be written in pieces."""


@dataclass
class WatchedFolder:
    """A folder that a library is kept like, and what is known of its files since they were last read."""

    path: Path
    versions: dict[str, FileVersion] = field(default_factory=dict)  # by absolute path
    skipped: dict[str, list[SkippedFile]] = field(default_factory=dict)  # until the file is read or removed
    other_types: Counter[str] = field(default_factory=Counter)  # files that are not read, by suffix or ""
    _identity: tuple[int, int] | None = None  # of the folder, when a file was last seen in it

    def read(
        self,
        library: Path,
        limits: ReadingLimits | None = None,
        check: Callable[[], None] = lambda: None,
        is_enough: Callable[[ReadResult], bool] = lambda _: False,
    ) -> ReadResult:
        """Read what has changed, as `read_changed` does; `keep_alike` is to follow.

        Raises:
            NothingToRead: The folder is not there.
        """
        return read_changed([self.path], self.versions, limits, library, check, is_enough)

    def keep_alike(
        self, library: Path, result: ReadResult, write: Callable[[list[SourceDocument]], Failures]
    ) -> list[str]:
        """Bring a library to what was read; return the names of the documents that have left it.

        `write` embeds and writes those documents that the library lacks; the files of those that fail count as skipped.
        The caller must hold the lock of the library.
        """
        failed = write(result.documents) if result.documents else {}
        identity = _identity(self.path)
        # A disk that is not there looks like an empty folder, which is another one than before.
        is_other = identity is None or identity != self._identity
        missing = {} if is_other and not result.versions else missing_documents(library, [self.path], result)
        if missing:
            remove_documents(library, missing)
        self._identity = identity if result.versions else self._identity
        kept = {path: each for path, each in self.skipped.items() if path in result.unchanged | result.deferred}
        skipped = defaultdict(list, kept)
        for each in result.skipped:
            skipped[each.origin].append(each)
        for document in result.documents:
            if error := failed.get(document.key):
                file = next(path for path in result.versions if f"{document.origin}#".startswith(f"{path}#"))
                skipped[file].append(SkippedFile(document.name, f"it cannot be embedded: {error}", origin=file))
        self.skipped = dict(sorted(skipped.items()))
        self.versions, self.other_types = result.versions, result.other_types
        return list(missing.values())


def watch(
    folders: Callable[[], Iterable[Path]], library: Path, stop: threading.Event
) -> Iterator[tuple[set[Path], set[Path]]]:
    """Yield the folders in which files may have changed, and those that are not there, after each change and second.

    A folder that is new among `folders`, or there again, comes first as changed. The library's own files do not count,
    nor do hidden ones.

    Raises:
        DemoError: The system watches no more folders.
    """
    own = Path(os.path.realpath(library))
    while not stop.is_set():
        there, gone = _identities(folders())
        if not there:
            yield set(), gone
            stop.wait(_TICK_MS / 1000)
            continue
        roots = {folder: Path(os.path.realpath(folder)) for folder in there}

        def counts(_: watchfiles.Change, changed: str, roots: dict[Path, Path] = roots) -> bool:
            path = Path(changed)
            return not path.is_relative_to(own) and any(_is_shown(path, root) for root in roots.values())

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


def _identities(folders: Iterable[Path]) -> tuple[dict[Path, tuple[int, int]], set[Path]]:
    found = {folder: _identity(folder) for folder in folders}
    there = {folder: identity for folder, identity in found.items() if identity is not None}
    return there, found.keys() - there


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return device and inode of a folder, None if it is not there."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if folder.is_dir() else None
