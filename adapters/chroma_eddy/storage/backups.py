"""`HnswBackup`: a copy of each collection's last complete vector files, kept until Chroma has saved the next.

About every thousand rows, Chroma overwrites a collection's HNSW files in place, records in its database up to which
row of its log they go, and purges the log up to there. A process that is killed before that record leaves files that
can be neither read nor built again. From a copy of the recorded files and the rest of the log, nothing is lost.
The same copy replaces files that something else has damaged.
"""

from __future__ import annotations

import logging
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from filelock import FileLock

from chroma_eddy.errors import DamagedVectors
from chroma_eddy.storage.hnsw_files import LOST, clear_unsaved, damage, is_recorded, record
from chroma_eddy.storage.names import DATABASE, WORDS

ROW_LOCK = "eddy.rows"
"""Lock file, held while a process writes rows or reads a collection's vectors for the first time."""
SAVED = "eddy.saved"
"""Folder of the copies, each named `<segment>.<last row of the log>`."""
BEGUN = "eddy.begun"
"""Marker file with the id of the collection that is being written; an interrupted write leaves it behind."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SELECT_SEGMENTS = """
SELECT segments.id, max_seq_id.seq_id FROM segments LEFT JOIN max_seq_id ON max_seq_id.segment_id = segments.id
WHERE segments.scope = 'VECTOR' AND ?1 IN (segments.collection, '')
"""
_EXECUTE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for statement in sys.argv[2:]:
    database.execute(statement)
"""
_ERASE = (
    # Chroma's log still has the texts of rows that are deleted or were written again. Of rows that are in the table of
    # texts, whose segment has scope METADATA, only the vectors are read from the log.
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


class HnswBackup:
    """Copies of a database's vector files; the caller holds `lock`, the row lock, at every call.

    With `salvage`, vectors that are damaged beyond repair are discarded instead of refused, and `lost` is then True.
    """

    def __init__(self, folder: Path, *, salvage: bool = False) -> None:
        self.lock = FileLock(folder / ROW_LOCK)
        self._folder, self._marker = folder, folder / BEGUN
        self._salvage, self.lost = salvage, False
        self._backed_up: dict[str, Any] = {}

    @property
    def interrupted(self) -> bool:
        """Whether a write was interrupted and must be repaired."""
        return self._marker.exists()

    def begin(self, collection: str) -> None:
        """Heal and back up a collection's files, and create the marker, before its rows are written or read.

        Raises:
            DamagedVectors: The files are damaged, and there is no copy that is not.
        """
        self._back_up(collection)
        self._marker.write_text(collection, encoding="utf-8")

    def end(self, collection: str) -> None:
        """Back up what the write has saved and delete the marker."""
        self._back_up(collection)
        self._marker.unlink()

    def repair(self) -> bool:
        """Restore the recorded files if a write was interrupted; return whether it was."""
        if not self.interrupted:
            return False
        collection = self._marker.read_text(encoding="utf-8", errors="replace")
        # A marker that names no collection was damaged too: any collection may have been written then.
        for segment, row in self._select(_SELECT_SEGMENTS, collection) or self._select(_SELECT_SEGMENTS, ""):
            live, copy = self._folder / segment, self._copy_path(segment, row)
            if not row:  # Chroma never saved the files, so the log has every row
                shutil.rmtree(live, ignore_errors=True)
            elif copy.exists():
                _restore(copy, live)
        self._backed_up.clear()
        self._marker.unlink()
        return True

    def delete_stale(self) -> None:
        """Delete the vector files, their copies and the words of collections that no longer exist."""
        paths = [path for path in self._folder.iterdir() if _UUID.fullmatch(path.name)]
        for folder in (self._folder / SAVED, self._folder / WORDS):
            paths += folder.iterdir() if folder.exists() else ()
        known = {id_ for (id_,) in self._select("SELECT id FROM segments UNION SELECT id FROM collections")}
        for path in paths:
            if path.name.partition(".")[0] not in known:
                shutil.rmtree(path)

    def erase(self) -> None:
        """Erase the texts of deleted rows from the database's file."""
        self._execute(*_ERASE)

    def heal(self, collection: str) -> bool:
        """Compare checksums of all files of a collection, and heal them; return whether any was damaged.

        Raises:
            DamagedVectors: The files are damaged, and there is no copy that is not.
        """
        segments = self._select(_SELECT_SEGMENTS, collection)
        return any([self._heal(segment, row, thorough=True) for segment, row in segments if row])

    def _heal(self, segment: str, row: int, *, thorough: bool = False) -> bool:
        live, copy = self._folder / segment, self._copy_path(segment, row)
        problem = damage(live, row, thorough=thorough)
        if not problem:
            return False
        beyond = damage(copy, row, thorough=True) if copy.exists() else "there is none"
        if not beyond:
            logging.getLogger(__name__).warning("%s: %s; put back from its copy in %s", live, problem, SAVED)
            _restore(copy, live, all_files=True)
        elif self._salvage:
            shutil.rmtree(live, ignore_errors=True)
            live.mkdir()
            (live / LOST).touch()
        else:
            raise DamagedVectors(
                f"the vectors in {live} are damaged ({problem}), and cannot be put back from a copy ({beyond}); their "
                "texts are kept: embed them again with `eddy-demo library repair`, or in Python with "
                "open_index(..., embedder, salvage=True).repair()"
            )
        self.lost = self.lost or bool(beyond)
        return True

    def _back_up(self, collection: str) -> None:
        for segment, row in self._select(_SELECT_SEGMENTS, collection):
            live, copy = self._folder / segment, self._copy_path(segment, row)
            if not row:
                clear_unsaved(live)
            if not row or self._backed_up.get(segment) == row:
                continue
            self._heal(segment, row)
            if (live / LOST).exists():
                continue
            if not is_recorded(live, row):
                record(live, row)
            if not is_recorded(copy, row):
                part = copy.with_name(f"{copy.name}.part")
                for stale in (part, copy):
                    shutil.rmtree(stale, ignore_errors=True)
                shutil.copytree(live, part)
                part.rename(copy)
            for other in copy.parent.glob(f"{segment}.*"):
                if other != copy:
                    shutil.rmtree(other)
            self._backed_up[segment] = row

    def _copy_path(self, segment: str, row: int) -> Path:
        return self._folder / SAVED / f"{segment}.{row}"

    def _select(self, statement: str, *values: str) -> Sequence[Any]:
        with closing(sqlite3.connect(self._folder / DATABASE, timeout=60)) as database:
            return database.execute(statement, values).fetchall()

    def _execute(self, *statements: str) -> None:
        """Change the database by statements, one by one, in a process of its own.

        Chroma brings its own copy of SQLite, and two copies in one process do not see each other's locks: Chroma would
        take the transaction for an interrupted one, and roll it back while it is being written.
        """
        command = [sys.executable, "-ISc", _EXECUTE, str(self._folder / DATABASE), *statements]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"the database reports: {done.stderr.strip().splitlines()[-1]}")


def _restore(copy: Path, live: Path, *, all_files: bool = False) -> None:
    """Replace the files that differ from the copy in size or time, or all."""
    live.mkdir(exist_ok=True)
    for path in live.iterdir():
        if not (copy / path.name).exists():
            path.unlink()
    for path in copy.iterdir():
        target = live / path.name
        if all_files or not target.exists() or _size_and_mtime(target) != _size_and_mtime(path):
            part = target.with_name(f"{path.name}.part")
            shutil.copy2(path, part)
            part.replace(target)


def _size_and_mtime(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
