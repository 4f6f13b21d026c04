"""The last whole copy of the vectors that Chroma saves, kept until it has saved the next.

Some thousand rows after the last time, Chroma writes a collection's vectors over its files, notes in its database how
far they go, and forgets its log up to there. A process that is killed before the note leaves files that can be neither
read nor made again. With a copy of what the note speaks of, nothing is lost: the log has the rest.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

SAVED = "eddy.saved"
"""Folder of the copies, each under `<segment>.<row of the log up to which it goes>`."""
BEGUN = "eddy.begun"
"""Holds the id of the collection whose rows are being written; it stays when that was cut short."""
_DATABASE = "chroma.sqlite3"


class HnswBackup:
    """Copies of a database's vectors; every call is made under a lock."""

    def __init__(self, folder: Path) -> None:
        """Copy nothing yet.

        Args:
            folder: Of the database.
        """
        self._folder, self._begun = folder, folder / BEGUN
        self._backed_up: dict[str, Any] = {}

    @property
    def interrupted(self) -> bool:
        """Whether somebody's writing was cut short, and is to be repaired first."""
        return self._begun.exists()

    def begin(self, collection: str) -> None:
        """Say that rows of a collection are about to be written."""
        self._back_up(collection)
        self._begun.write_text(collection, encoding="utf-8")

    def end(self, collection: str) -> None:
        """Say that they are."""
        self._back_up(collection)
        self._begun.unlink()

    def repair(self) -> bool:
        """Put back what the last note speaks of, if files were written since that it does not speak of.

        Returns:
            Whether writing had been cut short.
        """
        if not self.interrupted:
            return False
        collection = self._begun.read_text(encoding="utf-8")
        for segment, row in self._select(_SELECT_SEGMENTS, collection):
            live, copy = self._folder / segment, self._backup_path(segment, row)
            if not row:  # nothing was ever noted, so the log has everything
                shutil.rmtree(live, ignore_errors=True)
            elif copy.exists():
                _restore(copy, live)
        self._backed_up.clear()
        self._begun.unlink()
        return True

    def delete_stale(self) -> None:
        """Delete copies of collections that are gone."""
        if (self._folder / SAVED).exists():
            segments = {segment for (segment,) in self._select("SELECT id FROM segments")}
            for copy in (self._folder / SAVED).iterdir():
                if copy.name.partition(".")[0] not in segments:
                    shutil.rmtree(copy)

    def _back_up(self, collection: str) -> None:
        """Have a copy of what is noted."""
        for segment, row in self._select(_SELECT_SEGMENTS, collection):
            if not row or self._backed_up.get(segment) == row:
                continue
            copy = self._backup_path(segment, row)
            if not copy.exists():
                part = copy.with_name(f"{copy.name}.part")
                shutil.rmtree(part, ignore_errors=True)
                shutil.copytree(self._folder / segment, part)
                part.rename(copy)
            for other in copy.parent.glob(f"{segment}.*"):
                if other != copy:
                    shutil.rmtree(other)
            self._backed_up[segment] = row

    def _backup_path(self, segment: str, row: int) -> Path:
        return self._folder / SAVED / f"{segment}.{row}"

    def _select(self, question: str, *values: str) -> Sequence[Any]:
        with closing(sqlite3.connect(self._folder / _DATABASE, timeout=60)) as database:
            return database.execute(question, values).fetchall()


_SELECT_SEGMENTS = """
SELECT segments.id, max_seq_id.seq_id FROM segments LEFT JOIN max_seq_id ON max_seq_id.segment_id = segments.id
WHERE segments.collection = ? AND segments.scope = 'VECTOR'
"""


def _restore(copy: Path, live: Path) -> None:
    live.mkdir(exist_ok=True)
    for path in live.iterdir():
        if not (copy / path.name).exists():
            path.unlink()
    for path in copy.iterdir():
        target = live / path.name
        if not target.exists() or _size_and_mtime(target) != _size_and_mtime(path):
            part = target.with_name(f"{path.name}.part")
            shutil.copy2(path, part)
            part.replace(target)


def _size_and_mtime(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns
