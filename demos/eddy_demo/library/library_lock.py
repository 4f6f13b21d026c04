"""Lock of a library's folder, which lets one process write at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chroma_eddy import LOCK, WriterLock
from eddy_demo.library.settings import DATABASE_FOLDER, check_available, holds_library
from eddy_embed.utils.atomic_files import sync


@contextmanager
def lock_library(folder: Path) -> Iterator[None]:
    """Lock a library, or the folder of a new one; the system releases the lock when this process ends."""
    if not holds_library(folder):
        check_available(folder)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    sync(folder.parent)
    try:
        with WriterLock(folder):
            yield
    finally:
        if is_new and not holds_library(folder):
            with suppress(OSError):  # another process has written there, or the disk is gone
                shutil.rmtree(folder / DATABASE_FOLDER, ignore_errors=True)  # an empty database
                (folder / LOCK).unlink(missing_ok=True)
                folder.rmdir()
