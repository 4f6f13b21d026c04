"""A copy of a database's folder, taken while other processes may use it."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from chroma_eddy.errors import IndexInUse
from chroma_eddy.storage.backups import ROW_LOCK
from chroma_eddy.storage.names import DATABASE, LOCK, WRITER

_ATTEMPTS, _PAUSE = 10, 0.1
"""Most attempts to copy a folder that another process is writing to; seconds by which the pause between two grows."""
_SELECT_STATE = """
SELECT segment_id, seq_id FROM max_seq_id
UNION ALL SELECT collection_id, str_value FROM collection_metadata WHERE key = 'eddy_written' ORDER BY 1, 2
"""


def copy_database(folder: Path, target: Path) -> None:
    """Copy a database's folder, without its locks, to a new folder that its owner may write to.

    It takes no lock, which needs a writable folder; instead, it copies again if rows or vectors were written meanwhile.

    Raises:
        IndexInUse: Another process keeps writing.
        OSError: The folder cannot be read, or the target not be written.
    """
    for attempt in range(_ATTEMPTS):
        time.sleep(attempt * _PAUSE)
        before = _state(folder)
        shutil.rmtree(target, ignore_errors=True)
        try:
            shutil.copytree(folder, target, ignore=shutil.ignore_patterns(f"{DATABASE}*", LOCK, WRITER, ROW_LOCK))
        except shutil.Error:  # a file was replaced meanwhile
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        for path in (target, *target.rglob("*")):
            path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))
        with closing(_connect(folder)) as database, closing(sqlite3.connect(target / DATABASE)) as copy:
            database.backup(copy)
        if _state(target) == before:
            return
    raise IndexInUse(f"another process keeps writing to the database in {folder}; wait until it has finished")


def _state(folder: Path) -> list[Any]:
    """What changes with every write."""
    with closing(_connect(folder)) as database:
        return database.execute(_SELECT_STATE).fetchall()


def _connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{(folder / DATABASE).absolute().as_uri()}?mode=ro", uri=True, timeout=60)
