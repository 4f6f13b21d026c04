"""Chroma's database: how it is reached, locked, copied and reopened, and what its failures mean."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import chromadb
from chromadb.api import ClientAPI, ServerAPI
from chromadb.api.client import Client
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings, System
from chromadb.errors import ChromaError, InternalError, InvalidArgumentError, NotFoundError
from filelock import FileLock, Timeout

from chroma_eddy.types import IndexInUse, NoIndex, StorageError
from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.atomic_files import sync

DATABASE = "chroma.sqlite3"  # Chroma's database in its folder
LOCK, WRITER = "eddy.lock", "eddy.writer"  # lock file of the writing process, and the file that names that
ROW_LOCK = "eddy.rows"  # lock file of who changes rows, or reads a collection's vectors for the first time
VECTORS, KEYWORDS = "eddy.vectors", "eddy.words"  # folders with those of each index, in a folder of its id


# --- Failures ---------------------------------------------------------------------------------------------------------

ALMOST_FULL = 2**20  # free bytes on a disk below which a failure of the database is reported as a full disk


@contextmanager
def translated_errors(place: Path | str | None) -> Iterator[None]:
    """Raise the database's, the network's and the file system's errors as StorageError, with their cause.

    NotFoundError passes unchanged: the caller decides what a missing collection means. `place` is the database's folder
    or server URL; None where neither is known.
    """
    try:
        yield
    except NotFoundError:
        raise
    except BaseException as error:
        said, network = " ".join(str(error).split())[:300], type(error).__module__.partition(".")[0]
        if isinstance(error, InvalidArgumentError) and ("regex" in said.lower() or "where clause" in said.lower()):
            raise InvalidParameter(f"Chroma does not take the condition: {said}") from error
        if network in ("httpx", "httpcore") or "connect to a Chroma server" in said:
            raise StorageError(
                f"the Chroma server{f' at {place}' if isinstance(place, str) else ''} does not answer "
                f"({type(error).__name__}: {said}); start it, and do the same again: documents that are stored whole "
                "are not embedded again"
            ) from error
        # A panic in Chroma's compiled part derives from BaseException and has no importable class.
        from_database = isinstance(error, ChromaError | sqlite3.Error) or type(error).__name__ == "PanicException"
        is_of_disk = isinstance(error, OSError) and not isinstance(error, TimeoutError)
        if isinstance(error, Timeout):
            said = f"another process has been changing rows of {place} for a minute: stop it, and do the same again"
        elif isinstance(place, Path) and (from_database or is_of_disk):
            report = f"reports: {said}; see that the disk has room and works" if from_database else ""
            said = _cause_on_disk(place, error, report)
        elif from_database:
            said = f"the database reports: {said}; see that its disk has room and works"
        else:
            raise
        raise StorageError(said) from error


def _cause_on_disk(folder: Path, error: BaseException, report: str) -> str:
    """Return what is the matter with a folder; `report` is the database's, "" for an error of the file system."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < ALMOST_FULL or getattr(error, "errno", None) == errno.ENOSPC:
        return (
            f"the disk that holds {folder} is full ({free // 1024} kB left): make room and do the same again; what was "
            "finished is kept"
        )
    paths = (existing, existing / DATABASE, existing / LOCK, existing / WRITER)
    if isinstance(error, PermissionError) or any(path.exists() and not os.access(path, os.W_OK) for path in paths):
        return (
            f"{folder} cannot be written to, so it can be asked but not changed; make it writable, or copy the folder "
            "to a place that is, and name that"
        )
    if report:
        return f"the database in {folder} {report}"
    return f"{getattr(error, 'filename', None) or folder}: {getattr(error, 'strerror', None) or error}"


class WriterLock:
    """Reentrant lock of a writer: against other processes in a folder, only against other threads on a server.

    `folder` is that of an embedded database, None for a server's; a writer waits `timeout` seconds, -1 without end.
    """

    def __init__(self, folder: Path | None, timeout: float = 0.0) -> None:
        self.folder, self._timeout, self._threads = folder, timeout, threading.RLock()
        self._file = None if folder is None else FileLock(folder / LOCK, thread_local=False)

    def __enter__(self) -> WriterLock:
        """Acquire the lock; IndexInUse if another process or thread holds it."""
        if not self._threads.acquire(timeout=max(self._timeout, 0.0)):
            raise IndexInUse("another thread is writing with this index; wait until it has finished, or give a timeout")
        try:
            if self.folder is not None and self._file is not None:
                with translated_errors(self.folder):
                    self._acquire(self._file, self.folder)
        except BaseException:
            self._threads.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.folder is not None and self._file is not None:
                if self._file.lock_counter == 1:
                    with suppress(OSError):
                        (self.folder / WRITER).unlink(missing_ok=True)
                self._file.release()
        finally:
            self._threads.release()

    def _acquire(self, file: FileLock, folder: Path) -> None:
        try:
            file.acquire(timeout=self._timeout)
        except Timeout:
            other = "another process"
            with suppress(OSError, UnicodeDecodeError):
                other = (folder / WRITER).read_text(encoding="utf-8") or other
            raise IndexInUse(
                f"{other} is writing to the database in {folder}; wait until it has finished, or stop it, and do the "
                "same again",
                other,
            ) from None
        try:
            if file.lock_counter == 1:
                holder = f"process {os.getpid()} (since {time.strftime('%Y-%m-%d %H:%M:%S')})"
                (folder / WRITER).write_text(holder, encoding="utf-8")
        except BaseException:
            file.release()
            raise


# --- The database file ------------------------------------------------------------------------------------------------

_ATTEMPTS, _PAUSE = 10, 0.1  # most attempts to copy a folder; seconds by which the pause between two grows
# What changes with every write.
_SELECT_STATE = """
SELECT segment_id, seq_id FROM max_seq_id
UNION ALL SELECT collection_id, str_value FROM collection_metadata WHERE key = 'eddy_written' ORDER BY 1, 2
"""


def copy_database(folder: Path, target: Path) -> None:
    """Copy a database's folder, without its locks, to a new folder that its owner may write to.

    It takes no lock, which needs a writable folder; instead, it copies again if rows or vectors were written meanwhile,
    and raises IndexInUse if that does not end.
    """
    source = f"{(folder / DATABASE).absolute().as_uri()}?mode=ro"
    for attempt in range(_ATTEMPTS):
        time.sleep(attempt * _PAUSE)
        with closing(sqlite3.connect(source, uri=True, timeout=60)) as database:
            before = database.execute(_SELECT_STATE).fetchall()
            shutil.rmtree(target, ignore_errors=True)
            try:
                shutil.copytree(folder, target, ignore=shutil.ignore_patterns(f"{DATABASE}*", LOCK, WRITER, ROW_LOCK))
            except shutil.Error:  # a file was replaced meanwhile
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            for path in (target, *target.rglob("*")):
                path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))
            with closing(sqlite3.connect(target / DATABASE)) as copy:
                database.backup(copy)
                if copy.execute(_SELECT_STATE).fetchall() == before:
                    return
    raise IndexInUse(f"another process keeps writing to the database in {folder}; wait until it has finished")


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
_EXECUTE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for statement in sys.argv[2:]:
    database.execute(statement)
"""


def erase_texts(folder: Path) -> None:
    """Erase the texts of deleted rows from the file of a folder's database, in a process of its own.

    Chroma brings its own copy of SQLite, and two copies in one process do not see each other's locks: Chroma would take
    the transaction for an interrupted one, and roll it back while it is being written.
    """
    command = [sys.executable, "-ISc", _EXECUTE, str(folder / DATABASE), *_ERASE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2] or f"status {done.returncode}"
        raise OSError(f"the database cannot be changed: {reason}")


# --- Connections ------------------------------------------------------------------------------------------------------

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HNSW_FILES = {"data_level0.bin", "header.bin", "length.bin", "link_lists.bin", "index_metadata.pickle"}
_SELECT_SEGMENTS = "SELECT id FROM segments WHERE scope = 'VECTOR' AND collection = ?"
_SELECT_KNOWN = "SELECT id FROM segments UNION SELECT str_value FROM collection_metadata WHERE key = 'eddy_id'"
_PATIENCE, _POLL = 60.0, 0.005  # seconds to wait for another process that is changing rows, and between two attempts


@dataclass
class ClientState:
    """What Chroma's server object in this process has read: by index, the last known change, and loaded collections."""

    tokens: dict[str, str] = field(default_factory=dict)
    loaded: set[Any] = field(default_factory=set)


_STATES: WeakKeyDictionary[Any, ClientState] = WeakKeyDictionary()


class Connection:
    """A client, reopened when another process has written; closed at the end if nobody else uses it (`owned`).

    Chroma reads a collection's vectors once per process and never sees what other processes write later: a search then
    misses rows, and a write on top loses the other process's vectors. So an index that detects another process's write
    continues with a new client, and `generation` counts these.

    `place` is the folder or server URL, for error messages; None where neither is known. `folder` is where the client's
    files are, a temporary copy of a folder that cannot be written to; None on a server.
    """

    def __init__(
        self, client: ClientAPI, lock: WriterLock, place: Any, *, copy: TemporaryDirectory[str] | None = None
    ) -> None:
        self.client: Any = client  # of a concrete class, with more attributes than ClientAPI
        self.lock, self.generation = lock, 0
        self.place: Path | str | None = lock.folder or (place if isinstance(place, str) else None)
        self.folder = lock.folder if copy is None else Path(copy.name)
        # Keeps other processes from changing rows; on a server nothing does.
        self.alone: FileLock | AbstractContextManager[None] = nullcontext()
        if self.folder is not None:
            self.alone = FileLock(self.folder / ROW_LOCK, timeout=_PATIENCE, poll_interval=_POLL)
        self._owned, self._closed, self._copy = client is not place, False, copy
        self._segments: dict[str, list[str]] = {}

    @property
    def state(self) -> ClientState:
        """What the client has read."""
        return _STATES.setdefault(self.client._server, ClientState())

    def segments(self, collection: str) -> list[str]:
        """Return ids of a collection's segments of vectors, which are the names of their folders."""
        if collection not in self._segments:
            self._segments[collection] = self._select(_SELECT_SEGMENTS, collection)
        return self._segments[collection]

    def delete_stale(self) -> None:
        """Delete the files of vectors and keywords whose collections no longer exist, and no folder of others."""
        if self.folder is None:
            return
        known = set(self._select(_SELECT_KNOWN))
        for folder in (self.folder, self.folder / VECTORS, self.folder / KEYWORDS):
            for path in folder.iterdir() if folder.exists() else ():
                if _UUID.fullmatch(path.name) and path.name not in known and path.is_dir():
                    if folder != self.folder or {file.name for file in path.iterdir()} <= _HNSW_FILES:
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
        system = self.client._server._system if self._owned else None
        # Chroma counts clients by their folder, also one of a folder that was deleted since, and closes the last.
        if self._owned and SharedSystemClient._identifier_to_system.get(self.client._identifier, system) is system:
            self.client.close()
        if self._copy is not None:
            self._copy.cleanup()

    def check_open(self) -> None:
        """Refuse to go on after `close`: a new client would hold the files of a folder that may be deleted by now."""
        if self._closed:
            raise StorageError("the index was closed: open it again")


# --- Ways to a database -----------------------------------------------------------------------------------------------

Place = str | os.PathLike[str] | ClientAPI


def connect(place: Place, *, create: bool, timeout: float = 0.0) -> Connection:
    """Connect to a folder's database, which `create` allows to be made, to a server by its URL, or through a client.

    Chroma writes even to answer, so of a folder that cannot be written to it gets a temporary copy.
    """
    if isinstance(place, ClientAPI):
        settings = place.get_settings()
        folder = Path(settings.persist_directory) if settings.is_persistent else None
        return Connection(place, WriterLock(folder, timeout), place)
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise InvalidParameter(
            f"place={place!r:.80} must be a folder, a server's URL such as 'http://localhost:8000', or one of "
            "Chroma's clients"
        )
    if isinstance(place, str) and "://" in place:
        return Connection(_http_client(place), WriterLock(None, timeout), place)
    folder = Path(place)
    lock = WriterLock(folder, timeout)
    with translated_errors(folder):
        if not (folder / DATABASE).exists():
            if not create:
                raise NoIndex(f"there is no database in {folder}; give an embedder to make one")
            for cache in (SharedSystemClient._identifier_to_system, SharedSystemClient._identifier_to_refcount):
                cache.pop(str(folder), None)  # of a folder that was deleted meanwhile
            folder.mkdir(parents=True, exist_ok=True)
            sync(folder.parent)
            with lock:
                _create_database(folder)
        paths = (folder, folder / DATABASE, folder / ROW_LOCK)
        if all(os.access(path, os.W_OK) for path in paths if path.exists()):
            return Connection(_persistent_client(folder), lock, place)
        copy = TemporaryDirectory(prefix="eddy-")
        copy_database(folder, Path(copy.name))
        return Connection(_persistent_client(Path(copy.name)), lock, place, copy=copy)


def memory_client() -> ClientAPI:
    """Return a client of a new database in memory; Chroma shares its default one among a process's such clients."""
    name = f"eddy-{uuid.uuid4().hex}"
    settings = Settings(anonymized_telemetry=False, is_persistent=False)
    chromadb.AdminClient(settings).create_database(name)
    return chromadb.EphemeralClient(settings, database=name)


def _http_client(url: str) -> ClientAPI:
    parts = urlsplit(url)
    plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise InvalidParameter(
            f"place={url!r:.80} must read http://host:port or https://host:port; for anything more, such as headers "
            "or a tenant, give a client: chromadb.HttpClient(...)"
        )
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 8000)
    with translated_errors(url):
        return chromadb.HttpClient(parts.hostname, port, ssl=secure, settings=Settings(anonymized_telemetry=False))


def _persistent_client(folder: Path) -> ClientAPI:
    for settings in (Settings(anonymized_telemetry=False), Settings()):  # those of a client that this process may have
        try:
            return chromadb.PersistentClient(str(folder), settings=settings)
        except AttributeError as error:
            # Chroma fails to clean up after a client that it could not make, which hides the first error.
            raise InternalError(str(error.__context__ or error)) from error
        except ValueError as error:
            other = error
    raise InvalidParameter(
        f"a client of Chroma's with other settings has {folder} open in this process: give it, open_index(client, ...)"
    ) from other


def _create_database(folder: Path) -> None:
    """Create a database under another name and rename it when it is complete; Chroma cannot open a partial one."""
    if (folder / DATABASE).exists():
        return
    part = folder / ".chroma.part"
    shutil.rmtree(part, ignore_errors=True)
    _persistent_client(part).close()  # type: ignore[attr-defined]  # of the concrete client
    os.replace(part / DATABASE, folder / DATABASE)
    shutil.rmtree(part)
