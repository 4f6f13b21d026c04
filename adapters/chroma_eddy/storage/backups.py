"""`HnswBackup`: a copy of each collection's last complete vector files, kept until Chroma has saved the next.

About every thousand rows, Chroma overwrites a collection's HNSW files in place, records in its database up to which
row of its log they go, and purges the log up to there. It never waits until the files have reached the disk. A process
that is killed before that record, or a power failure after it, leaves files that can be neither read nor built again.
So the log is purged here instead, when a copy of the files is on the disk: from the copy and the rest of the log,
nothing is lost. The same copy replaces files that something else has damaged.
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
from eddy_embed.integrations import atomic_write, sync, sync_tree

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
_SELECT_KEPT_LOG = """
SELECT 1 FROM embeddings_queue_config WHERE json_extract(config_json_str, '$.automatically_purge') = 0
"""
_KEEP_LOG = """
REPLACE INTO embeddings_queue_config
VALUES (1, '{"automatically_purge":false,"_type":"EmbeddingsQueueConfigurationInternal"}')
"""
_PURGE_LOG = """
DELETE FROM embeddings_queue
WHERE seq_id < {row} AND substr(topic, -36) = (SELECT collection FROM segments WHERE id = '{segment}')
"""
_EXECUTE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for statement in sys.argv[2:]:
    database.execute(statement)
"""
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
        if not self._backed_up and not self._select(_SELECT_KEPT_LOG):
            self._execute(_KEEP_LOG)
        self._back_up(collection)
        with atomic_write(self._marker) as file:
            file.write(collection.encode())

    def end(self, collection: str) -> None:
        """Back up what the write has saved and delete the marker."""
        self._back_up(collection)
        self._marker.unlink()

    def repair(self) -> bool:
        """Restore the last files that were backed up if a write was interrupted; return whether it was."""
        if not self.interrupted:
            return False
        named = self._marker.read_text(encoding="utf-8", errors="replace")
        segments = self._select(_SELECT_SEGMENTS, named)
        if not _UUID.fullmatch(named):  # damaged too: any collection with a copy, as others' have none
            every = self._select(_SELECT_SEGMENTS, "")
            segments = [each for each in every if any((self._folder / SAVED).glob(f"{each[0]}.*"))]
        has_log = bool(segments and self._select(_SELECT_KEPT_LOG))
        for segment, row in segments:
            live = self._folder / segment
            if row and has_log and not (self._copy_path(segment, row).exists() or (live / LOST).exists()):
                row = self._undo_save(segment)
            copy = self._copy_path(segment, row)
            if not row:  # Chroma never saved the files, so the log has every row
                shutil.rmtree(live, ignore_errors=True)
            elif copy.exists() and not (is_recorded(live, row) and not damage(live, row, thorough=True)):
                _copy(copy, live)
        self._backed_up.clear()
        self._marker.unlink()
        return True

    def _undo_save(self, segment: str) -> int | None:
        """Let Chroma read the log from the last copy on; return its row, None if there is no copy.

        The files that Chroma has saved since may not have reached the disk.
        """
        copies = (path.suffix[1:] for path in (self._folder / SAVED).glob(f"{segment}.*"))
        row = max((int(number) for number in copies if number.isdigit()), default=None)
        change = "DELETE FROM max_seq_id" if row is None else f"UPDATE max_seq_id SET seq_id = {row}"
        self._execute(f"{change} WHERE segment_id = '{segment}'")
        return row

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
            _copy(copy, live)
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
            if not row and not (live / "index_metadata.pickle").exists():  # where older versions of Chroma keep the row
                clear_unsaved(live)
            if not row or self._backed_up.get(segment) == row:
                continue
            self._heal(segment, row)
            if (live / LOST).exists():
                continue
            if not is_recorded(live, row):
                sync_tree(live)
                record(live, row)
            if not is_recorded(copy, row):
                part = copy.with_name(f"{copy.name}.part")
                shutil.rmtree(copy, ignore_errors=True)
                _copy(live, part)
                part.rename(copy)
                sync(copy.parent)
                self._execute(_PURGE_LOG.format(row=row, segment=segment))
            for other in copy.parent.glob(f"{segment}.*"):
                if other != copy:
                    shutil.rmtree(other)
            self._backed_up[segment] = row

    def _copy_path(self, segment: str, row: int | None) -> Path:
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
            reason = done.stderr.strip().rpartition("\n")[2] or f"status {done.returncode}"
            raise OSError(f"the database cannot be changed: {reason}")


def _copy(source: Path, target: Path) -> None:
    """Copy a folder in place of another one, and wait until it is on the disk."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    sync_tree(target)
    sync(target.parent)
