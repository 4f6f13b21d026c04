"""What a database means when it fails."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chromadb.errors import ChromaError, NotFoundError

from chroma_eddy.errors import StorageError, Unreachable
from chroma_eddy.storage.locks import LOCK, WRITER

ALMOST_FULL = 2**20
"""Bytes left on a disk below which the database's failures are put down to that."""


# Handed on as it is: what was asked for is absent, which is for the caller to judge.
_PASSED_ON = (NotFoundError,)


@contextmanager
def translated_errors(place: Path | str | None) -> Iterator[None]:
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
        if isinstance(error, _PASSED_ON):
            raise
        cause = _explanation(place, error)
        if cause is None:
            raise
        raise (Unreachable if _is_unreachable(error) else StorageError)(cause) from error


def _is_unreachable(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("httpx", "httpcore") or "connect to a Chroma server" in str(
        error
    )


def _explanation(place: Path | str | None, error: BaseException) -> str | None:
    if _is_unreachable(error):
        return (
            f"the Chroma server{f' at {place}' if isinstance(place, str) else ''} does not answer "
            f"({type(error).__name__}: {_shortened(error)}); start it, and do the same again: documents that are "
            "stored whole are not embedded again"
        )
    # A panic in the database's compiled part is no ordinary exception.
    known = isinstance(error, ChromaError) or type(error).__name__ == "PanicException"
    if isinstance(place, Path):
        if known or (isinstance(error, OSError) and not isinstance(error, TimeoutError)):
            return _explain_disk_error(place, error, known)
        return None
    return f"the database reports: {_shortened(error)}; see that its disk has room and works" if known else None


def _explain_disk_error(folder: Path, error: BaseException, known: bool) -> str | None:
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
    return f"the database in {folder} reports: {_shortened(error)}; see that the disk has room and works"


def _shortened(error: BaseException, most: int = 300) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= most else f"{text[:most]} …"
