"""What is done to Chroma's database file itself: a copy of it, and the few statements that Chroma has no call for."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from chroma_eddy.errors import IndexInUse
from chroma_eddy.storage.names import DATABASE, LOCK, ROW_LOCK, WRITER

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


_ERASE = (
    # The log has the texts of deleted and replaced rows. Once a collection's METADATA segment has taken its texts from
    # the log, only its vectors are read from there.
    """
    UPDATE embeddings_queue SET metadata = NULL WHERE seq_id <= (
        SELECT max_seq_id.seq_id FROM max_seq_id JOIN segments ON segments.id = max_seq_id.segment_id
        WHERE segments.scope = 'METADATA' AND segments.collection = substr(topic, -36)
    )
    """,
    # The full-text index only marks its entries as deleted.
    "INSERT INTO embedding_fulltext_search (embedding_fulltext_search) VALUES ('rebuild')",
    "VACUUM",  # writes the database anew, without free pages and what is left in them
)
# Earlier versions of this library kept the log of all collections, and purged it themselves.
_PURGE_LOG = """
UPDATE embeddings_queue_config
SET config_json_str = json_set(config_json_str, '$.automatically_purge', json('true')) WHERE id = 1
"""
_EXECUTE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for statement in sys.argv[2:]:
    database.execute(statement)
"""


def erase_texts(folder: Path) -> None:
    """Erase the texts of deleted rows from the file of a folder's database."""
    _execute(folder, *_ERASE)


def let_purge_log(folder: Path) -> None:
    """Let Chroma purge its log by itself again, as it does by default."""
    _execute(folder, _PURGE_LOG)


def _execute(folder: Path, *statements: str) -> None:
    """Change the database by statements, one by one, in a process of its own.

    Chroma brings its own copy of SQLite, and two copies in one process do not see each other's locks: Chroma would take
    the transaction for an interrupted one, and roll it back while it is being written.
    """
    command = [sys.executable, "-ISc", _EXECUTE, str(folder / DATABASE), *statements]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2] or f"status {done.returncode}"
        raise OSError(f"the database cannot be changed: {reason}")
