"""The writer's lock: one writer at a time in a database's folder."""

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
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import LOCK, WRITER


class WriterLock:
    """Reentrant lock of a writer: against other processes in a folder, only against other threads on a server.

    `folder` is that of an embedded database, None for a server's; a writer waits `timeout` seconds for another one.
    """

    def __init__(self, folder: Path | None, timeout: float = 0.0) -> None:
        self.folder, self._timeout, self._depth = folder, timeout, 0
        self._threads = threading.RLock()
        self._file: FileLock | None = None

    def __enter__(self) -> WriterLock:
        """Acquire the lock.

        Raises:
            IndexInUse: Another process or thread holds it.
            StorageError: The folder cannot be written to.
        """
        if not self._threads.acquire(timeout=max(self._timeout, 0.0)):
            raise IndexInUse("another thread is writing with this index; wait until it has finished, or give a timeout")
        try:
            if self._depth == 0 and self.folder is not None:
                with translated_errors(self.folder):
                    self._acquire_file(self.folder)
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

    def _acquire_file(self, folder: Path) -> None:
        file = FileLock(folder / LOCK)
        try:
            file.acquire(timeout=self._timeout)
        except Timeout:
            other = _holder(folder)
            raise IndexInUse(
                f"{other} is writing to the database in {folder}; wait until it has finished, or stop it, and do the "
                "same again",
                other,
            ) from None
        try:
            holder = {"process": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            (folder / WRITER).write_text(json.dumps(holder), encoding="utf-8")
        except BaseException:
            file.release()
            raise
        self._file = file


def _holder(folder: Path) -> str:
    try:
        holder: dict[str, Any] = json.loads((folder / WRITER).read_text(encoding="utf-8"))
        return f"process {holder['process']} (since {holder['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
