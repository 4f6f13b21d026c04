"""`Connection`: a Chroma client that is reopened when another process has written to its folder.

Chroma reads a collection's vectors from its folder once per process and never sees what other processes write later:
a search then misses rows or returns deleted ones, and a write on top loses the other process's vectors. So each index
detects that another process has written, and continues with a new client that reads everything again.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakKeyDictionary

from chromadb.api import ClientAPI, ServerAPI
from chromadb.api.client import Client
from chromadb.config import System
from chromadb.errors import NotFoundError
from filelock import FileLock

from chroma_eddy.storage.locks import WriterLock
from chroma_eddy.storage.names import DATABASE, ROW_LOCK, VECTORS, WORDS

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SELECT_SEGMENTS = "SELECT id FROM segments WHERE scope = 'VECTOR' AND collection = ?"
_SELECT_KNOWN = "SELECT id FROM segments UNION SELECT str_value FROM collection_metadata WHERE key = 'eddy_id'"

_PATIENCE, _POLL = 60.0, 0.005
"""Seconds to wait for another process that is changing rows, and between two attempts."""


@dataclass
class ClientState:
    """What Chroma's server object in this process has read; clients of one folder share it."""

    tokens: dict[str, str] = field(default_factory=dict)
    """Last known change of each index, by the index's id."""
    loaded: set[Any] = field(default_factory=set)
    """Ids of the collections whose vectors are loaded."""


_STATES: WeakKeyDictionary[Any, ClientState] = WeakKeyDictionary()


class Connection:
    """A client, reopened when another process has written; closed at the end if nobody else uses it (`owned`).

    `place` is the folder or server URL, for error messages; None where neither is known. `folder` is where the client's
    files are, which for a folder that cannot be written to is a temporary copy; None on a server. `generation` counts
    the reopenings: collections of an earlier client do not see new rows.
    """

    def __init__(
        self,
        client: ClientAPI,
        lock: WriterLock,
        place: Any,
        *,
        owned: bool,
        copy: TemporaryDirectory[str] | None = None,
    ) -> None:
        self.client: Any = client  # of a concrete class, with more attributes than ClientAPI
        self.lock, self.generation = lock, 0
        self.place: Path | str | None = lock.folder or (place if isinstance(place, str) else None)
        self.folder = lock.folder if copy is None else Path(copy.name)
        self.row_lock = None
        if self.folder is not None:
            self.row_lock = FileLock(self.folder / ROW_LOCK, timeout=_PATIENCE, poll_interval=_POLL)
        self._owned, self._closed, self._copy = owned, False, copy
        self._segments: dict[str, list[str]] = {}

    @property
    def state(self) -> ClientState:
        """What the client has read."""
        return _STATES.setdefault(self.client._server, ClientState())

    def segments(self, collection: str) -> list[str]:
        """Ids of a collection's segments of vectors, which are the names of their folders."""
        if collection not in self._segments:
            self._segments[collection] = self._select(_SELECT_SEGMENTS, collection)
        return self._segments[collection]

    def delete_stale(self) -> None:
        """Delete the files of vectors and words whose collections no longer exist."""
        if self.folder is None:
            return
        known = set(self._select(_SELECT_KNOWN))
        for folder in (self.folder, self.folder / VECTORS, self.folder / WORDS):
            for path in folder.iterdir() if folder.exists() else ():
                if _UUID.fullmatch(path.name) and path.name not in known:
                    shutil.rmtree(path)

    def _select(self, statement: str, *values: str) -> list[str]:
        assert self.folder is not None
        with closing(sqlite3.connect(self.folder / DATABASE, timeout=60)) as database:
            return [value for (value,) in database.execute(statement, values)]

    def reopen(self, *, without_vectors_of: str | None = None) -> None:
        """Replace the client by one that has read nothing; callers' references to the old one stay valid.

        Before that, delete Chroma's files of a collection's vectors (`without_vectors_of`).
        """
        if self.folder is None:
            return
        self.check_open()
        for segment in () if without_vectors_of is None else self.segments(without_vectors_of):
            shutil.rmtree(self.folder / segment, ignore_errors=True)
        old, owned = self.client, self._owned
        system = System(old.get_settings())
        system.instance(ServerAPI)  # type: ignore[type-abstract]
        system.start()
        self.client = Client.from_system(system, old.tenant, old.database)
        self.generation += 1
        self._owned = True
        if owned:
            old.close()
            # Break the system's reference cycle, which would keep threads and files until garbage collection.
            old._server._system._instances.clear()

    def close(self) -> None:
        """Close the client unless somebody else uses it."""
        self._closed = True
        if self._owned:
            self.client.close()
        if self._copy is not None:
            self._copy.cleanup()

    def check_open(self) -> None:
        """Refuse to go on after `close`: a new client would hold the files of a folder that may be deleted by now.

        Raises:
            NotFoundError: The connection was closed.
        """
        if self._closed:
            raise NotFoundError("the index was closed; open it again")
