"""`Connection`: a Chroma client that is reopened when another process has written to its folder.

Chroma reads a collection's vectors from its folder once per process and never sees what other processes write later:
a search then misses rows or returns deleted ones, and a write on top loses the other process's vectors. So each index
detects that another process has written, and continues with a new client that reads everything again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakKeyDictionary

from chromadb.api import ClientAPI, ServerAPI
from chromadb.api.client import Client
from chromadb.api.models.Collection import Collection
from chromadb.config import System
from chromadb.errors import NotFoundError
from filelock import Timeout

from chroma_eddy.errors import StorageError
from chroma_eddy.storage.backups import HnswBackup
from chroma_eddy.storage.locks import WriterLock

_POLL = 0.005
_CHANGE_TIMEOUT = 5.0
"""Seconds after which a reader reads rows that another process has not finished changing."""


_Key = tuple[str, str, str]
"""Tenant, database and index."""


@dataclass
class ClientState:
    """What Chroma's server object in this process has read; clients of one folder share it."""

    tokens: dict[_Key, str] = field(default_factory=dict)
    """Last known change of each index."""
    changing: set[_Key] = field(default_factory=set)
    """Indexes whose rows this process is changing, as their metadata say."""
    loaded: set[Any] = field(default_factory=set)
    """Ids of the collections whose vectors are loaded."""
    failed: bool = False
    """Whether a write failed, so that memory and files may differ."""


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
        salvage: bool = False,
    ) -> None:
        self.client: Any = client  # of a concrete class, with more attributes than ClientAPI
        self.lock, self.generation = lock, 0
        self.place: Path | str | None = lock.folder or (place if isinstance(place, str) else None)
        self.folder = lock.folder if copy is None else Path(copy.name)
        self._owned, self._closed, self._copy = owned, False, copy
        self._backup = None if self.folder is None else HnswBackup(self.folder, salvage=salvage)
        self._change_seen: dict[_Key, tuple[str, float]] = {}

    @contextmanager
    def lock_rows(self, collection: Collection) -> Iterator[None]:
        """Hold the row lock, so that no process reads vector files while another writes them.

        Chroma may save a collection's files in place even in a process that only reads, if its log is long enough.
        """
        if self._backup is None:
            yield
            return
        with self._backup.lock.acquire(poll_interval=_POLL):
            if self._backup.interrupted:
                raise StorageError(f"another process was killed while it wrote to {self.place}; do the same again")
            state = self._state
            try:
                self._backup.begin(str(collection.id))
                yield
                self._backup.end(str(collection.id))
            except BaseException:
                state.failed = True
                raise

    def repair(self) -> None:
        """If a write was interrupted and no process holds the row lock, restore the backup; reopen the client."""
        if self._backup is None:
            return
        repaired = False
        if self._backup.interrupted:
            with suppress(Timeout), self._backup.lock.acquire(timeout=0):
                repaired = self._backup.repair()
        if repaired or self._state.failed:
            self.reopen()

    @property
    def lost_vectors(self) -> bool:
        """Whether damaged vectors were discarded, as `salvage` allows."""
        return self._backup is not None and self._backup.lost

    def heal(self, collection: Collection) -> None:
        """Compare checksums of a collection's files, and read what has to be put back from the copy.

        Raises:
            DamagedVectors: The files are damaged, and there is no copy that is not.
        """
        if self._backup is not None:
            with self._backup.lock.acquire(poll_interval=_POLL):
                damaged = self._backup.heal(str(collection.id))
            if damaged:
                self.reopen()

    def delete_stale_backups(self) -> None:
        """Delete the backups of collections that no longer exist."""
        if self._backup is not None:
            with self._backup.lock.acquire(poll_interval=_POLL):
                self._backup.delete_stale()

    def erase(self) -> None:
        """Erase the texts of deleted rows from the database, which must be in a folder."""
        assert self._backup is not None
        with self._backup.lock.acquire(poll_interval=_POLL):
            self._backup.erase()
        self.reopen()

    def load_vectors(self, collection: Collection) -> None:
        """Make Chroma read a collection's vectors, under the row lock, unless it has read them."""
        if self.folder is not None and collection.id not in self._state.loaded:
            with self.lock_rows(collection):
                collection.count()
            self._state.loaded.add(collection.id)

    def is_current(self, name: str, token: str, *, changing: bool) -> bool:
        """Whether this process has read the last change, `token`, of an index; the first one seen counts as read.

        `changing` says that rows are being changed, by the index's metadata. If another process has been changing them
        for `_CHANGE_TIMEOUT` seconds, it is slow or was killed, and its rows so far count as one more change.
        """
        if self.folder is None:
            return True
        key, now = self._key(name), time.monotonic()
        if changing and not self.is_changing(name):
            before, since = self._change_seen.get(key, ("", now))
            if before != token:
                self._change_seen[key] = token, now
            elif now - since > _CHANGE_TIMEOUT:
                token = f"{token}/changing"
        return self._state.tokens.setdefault(key, token) == token

    def has_seen(self, name: str) -> bool:
        """Whether this process knows a change of an index."""
        return self.folder is None or self._key(name) in self._state.tokens

    def record_change(self, name: str, token: str) -> None:
        """Record a change that this process has completed."""
        self._state.tokens[self._key(name)] = token
        self.set_changing(name, False)

    def is_changing(self, name: str) -> bool:
        """Whether this process is changing rows of an index."""
        return self._key(name) in self._state.changing

    def set_changing(self, name: str, changing: bool) -> None:
        """Record whether this process is changing rows of an index."""
        (self._state.changing.add if changing else self._state.changing.discard)(self._key(name))

    def move_state(self, old: str, new: str) -> None:
        """Move the known change of an index to the name that the index has taken."""
        tokens = self._state.tokens
        tokens.pop(self._key(new), None)
        if self._key(old) in tokens:
            tokens[self._key(new)] = tokens.pop(self._key(old))

    def reopen(self) -> None:
        """Replace the client by one that has read nothing; callers' references to the old one stay valid."""
        if self.folder is None:
            return
        self.check_open()
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

    @property
    def _state(self) -> ClientState:
        return _STATES.setdefault(self.client._server, ClientState())

    def _key(self, name: str) -> _Key:
        return self.client.tenant, self.client.database, name
