"""Files that are written whole or not at all, also if the power fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write, under its name only once everything is in it.

    It is opened beside its place at once, so that a place that cannot be written to is found out before the work. A
    file that is there is replaced; a device or a pipe is written directly.

    Raises:
        OSError: The place cannot be written to, or the disk is full; nothing is left behind.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with _named(path, target), target.open("wb") as file:
            yield file
        return
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _named(path, part):
            if target.exists() and not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            with part.open("wb") as file:
                yield file
            sync(part)
            os.replace(part, target)
            sync(target.parent)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file's content, or the names in a folder, have reached the disk."""
    if os.name == "nt":  # does not open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Wait until a folder, with everything below it, has reached the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


@contextmanager
def _named(path: str | os.PathLike[str], part: Path) -> Iterator[None]:
    """Name the file in errors that a write raises, which name none, or the part."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(part)):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
