"""One writer at a time in a database's folder, and what a database means when it fails."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from chromadb.errors import ChromaError, NotFoundError
from filelock import FileLock, Timeout

from chroma_eddy.errors import IndexInUse, StorageError, Unreachable

LOCK = "eddy.lock"
"""Held by the process that writes; the system lets go of it when that process ends."""
WRITER = "eddy.writer"
"""Which process that is, for the message to another."""
ALMOST_FULL = 2**20
"""Bytes left on a disk below which the database's failures are put down to that."""

# Handed on as it is: what was asked for is absent, which is for the caller to judge.
_ANSWERS = (NotFoundError,)


class Lock:
    """Held while something is written; the same thread may take it again inside.

    A folder is locked against other processes, a server only against other threads with the same index.

    Attributes:
        folder: Of an embedded database.
    """

    def __init__(self, folder: Path | None, timeout: float = 0.0) -> None:
        """Take nothing yet.

        Args:
            folder: Of an embedded database; None: a server's.
            timeout: Seconds to wait for another writer.
        """
        self.folder = folder
        self._timeout = timeout
        self._threads = threading.RLock()
        self._depth = 0
        self._file: FileLock | None = None

    def __enter__(self) -> Lock:
        """Take it.

        Raises:
            IndexInUse: Another process or thread has it.
            OSError: The folder cannot be written to.
        """
        if not self._threads.acquire(timeout=max(self._timeout, 0.0)):
            raise IndexInUse("another thread is writing with this index; wait until it has finished, or give a timeout")
        try:
            if self._depth == 0 and self.folder is not None:
                self._take(self.folder)
            self._depth += 1
        except BaseException:
            self._threads.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        try:
            if self._depth == 0 and self._file is not None and self.folder is not None:
                with suppress(OSError):
                    (self.folder / WRITER).unlink(missing_ok=True)
                self._file.release()
                self._file = None
        finally:
            self._threads.release()

    def _take(self, folder: Path) -> None:
        file = FileLock(folder / LOCK)
        try:
            file.acquire(timeout=self._timeout)
        except Timeout:
            raise IndexInUse(
                f"{_holder(folder)} is writing to the database in {folder}; wait until it has finished, or stop it, "
                "and do the same again"
            ) from None
        try:
            about = {"process": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            (folder / WRITER).write_text(json.dumps(about), encoding="utf-8")
        except BaseException:
            file.release()
            raise
        self._file = file


@contextmanager
def failures(place: Path | str | None) -> Iterator[None]:
    """Say what lies behind a failure of the database: most often it cannot write, and does not say so.

    Args:
        place: A folder, a server's URL, or None where neither is known.

    Raises:
        StorageError: In place of what the database, the network or the file system raised; `Unreachable` where a server
            does not answer.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, _ANSWERS):
            raise
        cause = _cause(place, error)
        if cause is None:
            raise
        raise (Unreachable if _is_unreachable(error) else StorageError)(cause) from error


def _is_unreachable(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("httpx", "httpcore") or "connect to a Chroma server" in str(
        error
    )


def _cause(place: Path | str | None, error: BaseException) -> str | None:
    if _is_unreachable(error):
        return (
            f"the Chroma server{f' at {place}' if isinstance(place, str) else ''} does not answer "
            f"({type(error).__name__}: {_short(error)}); start it, and do the same again: documents that are stored "
            "whole are not embedded again"
        )
    # A panic in the database's compiled part is no ordinary exception.
    known = isinstance(error, ChromaError) or type(error).__name__ == "PanicException"
    if isinstance(place, Path):
        if known or (isinstance(error, OSError) and not isinstance(error, TimeoutError)):
            return _cause_on_disk(place, error, known)
        return None
    return f"the database reports: {_short(error)}; see that its disk has room and works" if known else None


def _cause_on_disk(folder: Path, error: BaseException, known: bool) -> str | None:
    place = folder
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < ALMOST_FULL or getattr(error, "errno", None) == errno.ENOSPC:
        return (
            f"the disk that holds {folder} is full ({free // 1024} kB left): make room and do the same again; what was "
            "finished is kept"
        )
    names = (place, place / "chroma.sqlite3", place / LOCK, place / WRITER)
    denied = isinstance(error, PermissionError) or any(p.exists() and not os.access(p, os.W_OK) for p in names)
    if denied:
        return (
            f"{folder} cannot be written to, and the database writes into it even to answer; make it writable, or copy "
            "the folder to a place that is, and name that"
        )
    if not known:
        return f"{getattr(error, 'filename', None) or folder}: {getattr(error, 'strerror', None) or error}"
    return f"the database in {folder} reports: {_short(error)}; see that the disk has room and works"


def _short(error: BaseException, most: int = 300) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= most else f"{text[:most]} …"


def _holder(folder: Path) -> str:
    try:
        about: dict[str, Any] = json.loads((folder / WRITER).read_text(encoding="utf-8"))
        return f"process {about['process']} (since {about['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
