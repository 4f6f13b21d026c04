"""Keep a library like folders: what changes in them is read, what is removed from them leaves it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import watchfiles
from rich.text import Text

from chroma_eddy import IndexInUse
from eddy_demo.cli.embedding_work import deepen
from eddy_demo.cli.lock import lock_for_command
from eddy_demo.cli.options import err
from eddy_demo.cli.work import Choices, handle_missing, ingest_read
from eddy_demo.display_text import printable
from eddy_demo.errors import DemoError, NothingToRead
from eddy_demo.readers.documents import FileVersion, read_changed
from eddy_embed import Embedder
from eddy_embed.errors import EddyError
from eddy_embed.integrations import Interrupted

_TICK_MS = 1000
"""Time after which a library that another process wrote to is tried again."""
_QUIET_MS = 200
"""Time without a change after which the changes are read, since a file may be written in pieces."""


class _Folders:
    """Folders, the library that is kept like them, and the versions of the files that it has."""

    def __init__(self, paths: list[Path], library: Path, choices: Choices, device: str | None) -> None:
        self._paths, self._library, self._choices, self._device = paths, library, choices, device
        self._versions: dict[str, FileVersion] = {}
        self._was_read = False
        self._embedder: Embedder | None = None  # kept: its model need not be loaded for each change

    def read(self, rebuild: bool = False) -> None:
        """Read what has changed since the last time."""
        with lock_for_command(self._library):
            result = read_changed(self._paths, self._versions, without=self._library)
            if self._was_read:
                result.other_types.clear()  # told already
            if result.documents or result.skipped or result.other_types:
                _, embedder = ingest_read(self._library, result, self._choices, self._device, rebuild)
                self._embedder = embedder or self._embedder
            if self._was_read or result.documents:  # a disk that is not there looks like an empty folder
                handle_missing(self._library, self._paths, result, sync=True)
            self._versions, self._was_read = result.versions, True
            deepen(self._library, self._device)


def watch(paths: list[Path], library: Path, choices: Choices, device: str | None, rebuild: bool) -> None:
    """Embed the documents of folders, and what changes in them, until the process is interrupted.

    Raises:
        NothingToRead: A path is no folder, or a folder is not there any more.
    """
    for path in paths:
        if not path.is_dir():
            raise NothingToRead(f"{path} is no folder, and --watch takes folders; give the folder that holds it")
    folders, waits, is_first = _Folders(paths, library, choices, device), False, True
    for changed in _changes(paths, library):
        if not (changed or waits or is_first):
            continue
        try:
            folders.read(rebuild and is_first)
            waits = False
        except NothingToRead:
            raise
        except (DemoError, EddyError, OSError) as error:
            if is_first:
                raise
            if not waits:
                err.print(Text(f"Error: {printable(str(error))}", "yellow"), soft_wrap=True)
            waits = isinstance(error, IndexInUse)
        if is_first:
            where = ", ".join(map(str, paths))
            err.print(Text(f"Watching {printable(where)}. Ctrl-C ends it."))
        is_first = False
    err.print("Watching ended; the library is complete.")


def _changes(paths: list[Path], library: Path) -> Iterator[bool]:
    """Yield whether files have changed, after each change and each second, until the process is interrupted."""
    roots, own = [Path(os.path.realpath(path)) for path in paths], Path(os.path.realpath(library))

    def counts(_: watchfiles.Change, changed: str) -> bool:
        path = Path(changed)
        below = (path.relative_to(root).parts for root in roots if path.is_relative_to(root))
        return not path.is_relative_to(own) and any(not part.startswith(".") for parts in below for part in parts[-1:])

    with suppress(KeyboardInterrupt, Interrupted):
        for found in watchfiles.watch(
            *roots,
            watch_filter=counts,
            step=_QUIET_MS,
            rust_timeout=_TICK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        ):
            yield bool(found)
