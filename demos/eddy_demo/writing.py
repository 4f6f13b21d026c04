"""One writer at a time in a library's folder, and what the database means when it cannot write."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chromadb.errors import ChromaError
from filelock import FileLock, Timeout

from eddy_demo.errors import DatabaseError, LibraryInUse
from eddy_demo.recipe import LOCK, WRITER, check_free, holds_library
from eddy_embed.stopping import Stopped

ALMOST_FULL = 2**20
"""Bytes left on a disk below which the database's failures are put down to that."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Be the only process that writes to a library, name what fails, and say how to go on if the work is cut short.

    Raises:
        LibraryInUse: Another process is writing there.
        LibraryMismatch: The folder holds something else.
        DatabaseError: The database could not write.
        OSError: The folder cannot be made or written to.
        Stopped: The process was asked to end, with a hint.
    """
    try:
        with sole_writer(folder), database_of(folder):
            yield
    except (KeyboardInterrupt, Stopped) as error:
        stop = error if isinstance(error, Stopped) else Stopped()
        stop.hint = "Run the same command again to go on where it stopped."
        raise stop from None


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a library, or the place for one, against other processes; the system lets go of it when this one ends.

    Raises:
        LibraryInUse: Another process is writing there.
        LibraryMismatch: The folder holds something else.
        OSError: The folder cannot be made or written to.
    """
    if not holds_library(folder):
        check_free(folder)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise LibraryInUse(
            f"{_holder(folder)} is writing to the library in {folder}; wait until it has finished, or stop it, and run "
            "the same command again"
        ) from None
    try:
        about = {"process": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        (folder / WRITER).write_text(json.dumps(about), encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            (folder / WRITER).unlink(missing_ok=True)
        if made and not holds_library(folder):
            with suppress(OSError):  # somebody else has put something there, or the disk has gone
                (folder / LOCK).unlink(missing_ok=True)
                folder.rmdir()
        lock.release()


@contextmanager
def database_of(folder: Path) -> Iterator[None]:
    """Say what lies behind a failure of the database: most often it cannot write, and does not say so.

    Raises:
        DatabaseError: In place of what the database raised.
    """
    try:
        yield
    except BaseException as error:
        # A panic in the database's compiled part is no ordinary exception.
        if isinstance(error, ChromaError) or type(error).__name__ == "PanicException":
            raise DatabaseError(_cause(folder, error)) from error
        raise


def _cause(folder: Path, error: BaseException) -> str:
    place = folder if folder.exists() else folder.parent
    free = shutil.disk_usage(place).free
    if free < ALMOST_FULL:
        return (
            f"the disk that holds {folder} is full ({free // 1024} kB left): make room and run the same command again; "
            "what was finished is kept"
        )
    if any(each.exists() and not os.access(each, os.W_OK) for each in (place, place / "chroma")):
        return (
            f"{folder} cannot be written to, and the library's database writes into it even to answer; make it "
            "writable, or copy the folder to a place that is, and name that with --library"
        )
    return (
        f"the library's database reports: {error}; see that the disk has room and works; if the library is "
        "damaged, make it anew with --rebuild"
    )


def _holder(folder: Path) -> str:
    try:
        about = json.loads((folder / WRITER).read_text(encoding="utf-8"))
        return f"process {about['process']} (since {about['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
