"""Causes of the database's failures, which it often does not report itself: a full disk, no permission, no server."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chromadb.errors import ChromaError, InvalidArgumentError, NotFoundError
from filelock import Timeout

from chroma_eddy.errors import StorageError, Unreachable
from chroma_eddy.storage.names import DATABASE, LOCK, WRITER
from eddy_embed.errors import InvalidParameter

ALMOST_FULL = 2**20
"""Free bytes on a disk below which a failure of the database is reported as a full disk."""


@contextmanager
def translated_errors(place: Path | str | None) -> Iterator[None]:
    """Raise the database's, the network's and the file system's errors as StorageError, with their cause.

    NotFoundError passes unchanged: the caller decides what a missing collection means. The error is `Unreachable` if a
    server does not answer. `place` is the database's folder or server URL; None where neither is known.
    """
    try:
        yield
    except NotFoundError:
        raise
    except InvalidArgumentError as error:
        if "regex" not in str(error).lower() and "where clause" not in str(error):
            raise StorageError(str(_cause(place, error))) from error
        raise InvalidParameter(f"Chroma does not take the condition: {_shortened(error)}") from error
    except BaseException as error:
        cause = _cause(place, error)
        if cause is None:
            raise
        raise (Unreachable if _is_unreachable(error) else StorageError)(cause) from error


def _is_unreachable(error: BaseException) -> bool:
    network = type(error).__module__.partition(".")[0] in ("httpx", "httpcore")
    return network or "connect to a Chroma server" in str(error)


def _cause(place: Path | str | None, error: BaseException) -> str | None:
    """The message of a translated error; None: the error is not the database's."""
    if _is_unreachable(error):
        return (
            f"the Chroma server{f' at {place}' if isinstance(place, str) else ''} does not answer "
            f"({type(error).__name__}: {_shortened(error)}); start it, and do the same again: documents that are "
            "stored whole are not embedded again"
        )
    if isinstance(error, Timeout):
        return f"another process has been changing rows of {place} for a minute: stop it, and do the same again"
    # A panic in Chroma's compiled part derives from BaseException and has no importable class.
    from_database = isinstance(error, ChromaError | sqlite3.Error) or type(error).__name__ == "PanicException"
    from_disk = isinstance(error, OSError) and not isinstance(error, TimeoutError)
    if isinstance(place, Path) and (from_database or from_disk):
        return _cause_on_disk(place, error, from_database)
    return f"the database reports: {_shortened(error)}; see that its disk has room and works" if from_database else None


def _cause_on_disk(folder: Path, error: BaseException, from_database: bool) -> str:
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < ALMOST_FULL or getattr(error, "errno", None) == errno.ENOSPC:
        return (
            f"the disk that holds {folder} is full ({free // 1024} kB left): make room and do the same again; what was "
            "finished is kept"
        )
    paths = (existing, existing / DATABASE, existing / LOCK, existing / WRITER)
    if isinstance(error, PermissionError) or any(path.exists() and not os.access(path, os.W_OK) for path in paths):
        return (
            f"{folder} cannot be written to, so it can be asked but not changed; make it writable, or copy the folder "
            "to a place that is, and name that"
        )
    if not from_database:
        return f"{getattr(error, 'filename', None) or folder}: {getattr(error, 'strerror', None) or error}"
    return f"the database in {folder} reports: {_shortened(error)}; see that the disk has room and works"


def _shortened(error: BaseException, most: int = 300) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= most else f"{text[:most]} …"
