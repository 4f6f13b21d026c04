"""One writer at a time in a database's folder, and what a database means when it fails."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from chroma_eddy.errors import IndexInUse

LOCK = "eddy.lock"
"""Held by the process that writes; the system lets go of it when that process ends."""
WRITER = "eddy.writer"
"""Which process that is, for the message to another."""


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


def _holder(folder: Path) -> str:
    try:
        about: dict[str, Any] = json.loads((folder / WRITER).read_text(encoding="utf-8"))
        return f"process {about['process']} (since {about['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
