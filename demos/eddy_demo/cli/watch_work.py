"""`eddy-demo ingest --watch`: keep a library like folders until the process is interrupted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rich.text import Text

from chroma_eddy import IndexInUse
from eddy_demo.cli import console
from eddy_demo.cli.embedding_work import deepen
from eddy_demo.cli.lock import lock_for_command
from eddy_demo.cli.options import err
from eddy_demo.cli.work import Choices, ingest_read
from eddy_demo.display_text import printable
from eddy_demo.errors import DemoError
from eddy_demo.library.ingest import Failures
from eddy_demo.library.watching import WatchedFolder
from eddy_demo.library.watching import watch as watch_folders
from eddy_embed import Embedder
from eddy_embed.errors import EddyError
from eddy_embed.utils.interrupts import Interrupted
from readers_eddy.documents import ReadResult, SourceDocument
from readers_eddy.errors import NothingToRead


class _Watched:
    """Folders, and the library that is kept like them."""

    def __init__(self, paths: list[Path], library: Path, choices: Choices, device: str | None, rebuild: bool) -> None:
        self._folders = {path: WatchedFolder(path) for path in paths}
        self._library, self._choices, self._device, self._rebuild = library, choices, device, rebuild
        self._embedder: Embedder | None = None  # kept: its model need not be loaded for each change
        self._waiting: set[Path] = set()
        self._is_used = False  # by another process, for which the changes wait

    def read(self, changed: set[Path], is_first: bool) -> None:
        """Read changed folders, and those that wait; an error is told, but raised the first time."""
        self._waiting |= changed
        for path in [path for path in self._folders if path in self._waiting]:
            try:
                self._read(self._folders[path])
            except NothingToRead:  # the next look says that it has gone
                pass
            except (DemoError, EddyError, OSError) as error:
                if is_first:
                    raise
                before, self._is_used = self._is_used, isinstance(error, IndexInUse)
                if not (before and self._is_used):
                    _tell(f"Error: {error}")
                if self._is_used:
                    return
            self._waiting.discard(path)
        self._is_used = False

    def _read(self, folder: WatchedFolder) -> None:
        with lock_for_command(self._library):
            result = folder.read(self._library)
            others = result.other_types if result.other_types != folder.other_types else Counter[str]()
            console.print_skipped(err, result.skipped, others)

            def write(documents: list[SourceDocument]) -> Failures:
                read = ReadResult(documents)
                _, embedder, failed = ingest_read(self._library, read, self._choices, self._device, self._rebuild)
                self._embedder, self._rebuild = embedder or self._embedder, False
                return failed

            console.print_missing(err, folder.keep_alike(self._library, result, write), removed=True)
            deepen(self._library, self._device)


def watch(paths: list[Path], library: Path, choices: Choices, device: str | None, rebuild: bool) -> None:
    """Embed the documents of folders, and what changes in them, until the process is interrupted.

    Raises:
        NothingToRead: A path is no folder.
    """
    for path in paths:
        if not path.is_dir():
            raise NothingToRead(f"{path} is no folder, and --watch takes folders; give the folder that holds it")
    watched, away, is_first = _Watched(paths, library, choices, device, rebuild), set[Path](), True
    for changed, gone in _changes(paths, library):
        for path in sorted(gone - away):
            _tell(f"{path} is not there any more; it is read again when it is.")
        away = gone
        watched.read(changed, is_first)
        if is_first:
            err.print(Text(f"Watching {printable(', '.join(map(str, paths)))}. Ctrl-C ends it."))
        is_first = False
    err.print("Watching ended; the library is complete.")


def _changes(paths: list[Path], library: Path) -> Iterator[tuple[set[Path], set[Path]]]:
    with suppress(KeyboardInterrupt, Interrupted):
        yield from watch_folders(lambda: paths, library, threading.Event())


def _tell(problem: str) -> None:
    err.print(Text(printable(problem), "yellow"), soft_wrap=True)
