"""A database's client, and what it has read of a folder that other processes write to as well.

Chroma reads a collection's vectors from its folder once in a process, and what other processes write later it never
sees: a search then misses rows, or finds such as are gone, and a process that writes on top of that loses the others'
vectors. So each index notices that another process has written, and goes on with a client that reads everything anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from filelock import FileLock, Timeout

from chroma_eddy.errors import StorageError
from chroma_eddy.storage.backups import HnswBackup
from chroma_eddy.storage.locks import Lock

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

ROW_LOCK = "eddy.rows"
"""Held while rows are written, and while a process reads a collection's vectors for the first time."""
_POLL = 0.005
_CHANGE_TIMEOUT = 5.0
"""Seconds that rows may be changing before a reader looks at them without waiting for the end."""


@dataclass
class ClientState:
    """What the part of Chroma behind the clients of one folder in this process has read.

    Attributes:
        tokens: Of each index, the last change that it knows.
        changing: Indexes whose rows are being changed in it, as their metadata say.
        collections: Those whose vectors it has read.
        failed: Whether a write failed in it, so that it may hold what its files do not.
    """

    tokens: dict[tuple[str, str, str], str] = field(default_factory=dict)
    changing: set[tuple[str, str, str]] = field(default_factory=set)
    loaded: set[Any] = field(default_factory=set)
    failed: bool = False


_STATES: WeakKeyDictionary[Any, ClientState] = WeakKeyDictionary()


class Connection:
    """A client, which is exchanged for one that reads anew when another process has written.

    Attributes:
        client: As it is now.
        lock: To be held while an index is written to.
        place: A folder, a server's URL, or None where neither is known; for messages.
        generation: Grows with each exchange: collections of an earlier client know nothing of what is new.
    """

    def __init__(self, client: ClientAPI, lock: Lock, place: Any, *, owned: bool) -> None:
        """Read nothing yet.

        Args:
            client: To begin with.
            lock: Of the folder, or of no folder where a server holds the database.
            place: Where it is.
            owned: Whether nobody else uses the client, so that it may be closed.
        """
        self.client, self.lock = client, lock
        self.place: Path | str | None = lock.folder or (place if isinstance(place, str) else None)
        self.generation = 0
        self._owned = owned
        self._rows = None if lock.folder is None else FileLock(lock.folder / ROW_LOCK)
        self._backup = None if lock.folder is None else HnswBackup(lock.folder)
        self._since: dict[tuple[str, str, str], tuple[str, float]] = {}

    @contextmanager
    def lock_rows(self, collection: Collection) -> Iterator[None]:
        """Keep other processes from reading vectors while they are written, and the other way round.

        Chroma saves its files in place, also in a process that only reads, if it finds enough in the log.

        Args:
            collection: Whose rows they are.

        Raises:
            StorageError: Another process was killed in the midst of this.
        """
        if self._rows is None or self._backup is None:
            yield
            return
        with self._rows.acquire(poll_interval=_POLL):
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
        """Repair what was cut short, by whichever process."""
        if self._rows is None or self._backup is None:
            return
        repaired = False
        if self._backup.interrupted:
            with suppress(Timeout), self._rows.acquire(timeout=0):  # else somebody is at it just now
                repaired = self._backup.repair()
        if repaired or self._state.failed:
            self.reopen()

    def delete_stale_backups(self) -> None:
        """Delete what was kept of collections that are gone."""
        if self._rows is not None and self._backup is not None:
            with self._rows.acquire(poll_interval=_POLL):
                self._backup.delete_stale()

    def load_vectors(self, collection: Collection) -> None:
        """Have Chroma read a collection's vectors, if it has not done so."""
        if self.lock.folder is not None and collection.id not in self._state.loaded:
            with self.lock_rows(collection):
                collection.count()
            self._state.loaded.add(collection.id)

    def is_current(self, name: str, token: str, *, changing: bool) -> bool:
        """Whether all changes of an index have been read.

        Args:
            name: The index's.
            token: Of its last change, as its metadata have it; what is heard of first is taken for known.
            changing: Whether its rows have been changing since. After a while, whoever was at it elsewhere was killed,
                or is slow, and what is written by then is a change of its own.
        """
        if self.lock.folder is None:
            return True
        key, now = self._key(name), time.monotonic()
        if changing and not self.is_changing(name):
            begun, since = self._since.get(key, ("", now))
            if begun != token:
                self._since[key] = token, now
            elif now - since > _CHANGE_TIMEOUT:
                token = f"{token}/changing"
        return self._state.tokens.setdefault(key, token) == token

    def has_seen(self, name: str) -> bool:
        """Whether a change of an index is known."""
        return self.lock.folder is None or self._key(name) in self._state.tokens

    def record_change(self, name: str, token: str) -> None:
        """Know of a change that was made here."""
        self._state.tokens[self._key(name)] = token
        self.clear_changing(name)

    def is_changing(self, name: str) -> bool:
        """Whether rows of an index are being changed here."""
        return self._key(name) in self._state.changing

    def set_changing(self, name: str) -> None:
        """Know that they are."""
        self._state.changing.add(self._key(name))

    def clear_changing(self, name: str) -> None:
        """Know that they are not."""
        self._state.changing.discard(self._key(name))

    def move_state(self, name: str, other: str) -> None:
        """Know of an index what was known of another, whose name it has got."""
        tokens = self._state.tokens
        tokens.pop(self._key(name), None)
        if self._key(other) in tokens:
            tokens[self._key(name)] = tokens.pop(self._key(other))

    def reopen(self) -> None:
        """Go on with a client that has read nothing; collections that somebody holds stay as they are."""
        if self.lock.folder is None:
            return
        from chromadb.api import ServerAPI
        from chromadb.api.client import Client
        from chromadb.config import System

        old, owned = self._concrete, self._owned
        system = System(old.get_settings())
        system.instance(ServerAPI)  # type: ignore[type-abstract]
        system.start()
        self.client = Client.from_system(system, old.tenant, old.database)
        self.generation += 1
        self._owned = True
        if owned:
            old.close()
            # It holds itself in a circle, and would keep threads and files until the garbage is collected.
            old._server._system._instances.clear()

    def close(self) -> None:
        """Let go of the database's files, where the client is nobody else's."""
        if self._owned:
            self._concrete.close()

    @property
    def _state(self) -> ClientState:
        # Clients of one folder share what has been read, unless one of them has begun anew.
        return _STATES.setdefault(self._concrete._server, ClientState())

    def _key(self, name: str) -> tuple[str, str, str]:
        return self._concrete.tenant, self._concrete.database, name

    @property
    def _concrete(self) -> Any:
        return self.client
