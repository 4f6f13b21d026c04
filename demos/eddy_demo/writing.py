"""One writer at a time in a library's folder, and how to go on if the work is cut short."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chroma_eddy.storage.locks import LOCK, Lock
from eddy_demo.recipe import CHROMA, check_free, holds_library
from eddy_embed.stopping import Stopped


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the only process that writes to a library, and say how to go on if the work is cut short.

    Raises:
        IndexInUse: Another process is writing there.
        LibraryMismatch: The folder holds something else.
        OSError: The folder cannot be made or written to.
        Stopped: The process was asked to end, with a hint.
    """
    try:
        with sole_writer(folder):
            yield
    except (KeyboardInterrupt, Stopped) as error:
        stop = error if isinstance(error, Stopped) else Stopped()
        stop.hint = "Run the same command again to go on where it stopped."
        raise stop from None


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a library, or the place for one, against other processes; the system lets go of it when this one ends.

    Raises:
        IndexInUse: Another process is writing there.
        LibraryMismatch: The folder holds something else.
        OSError: The folder cannot be made or written to.
    """
    if not holds_library(folder):
        check_free(folder)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with Lock(folder):
            yield
    finally:
        if made and not holds_library(folder):
            with suppress(OSError):  # somebody else has put something there, or the disk has gone
                shutil.rmtree(folder / CHROMA, ignore_errors=True)  # of which nothing is told: it is empty
                (folder / LOCK).unlink(missing_ok=True)
                folder.rmdir()
