"""Connections to a database: in a folder, on a server, or through a client of the caller."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import chromadb
from chromadb.api import ClientAPI
from chromadb.config import Settings
from chromadb.errors import InternalError

from chroma_eddy.errors import NoIndex
from chroma_eddy.storage.connection import Connection
from chroma_eddy.storage.database_file import copy_database
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.locks import WriterLock
from chroma_eddy.storage.names import DATABASE, ROW_LOCK
from eddy_embed.errors import InvalidParameter
from eddy_embed.utils.atomic_files import sync

Place = str | os.PathLike[str] | ClientAPI


def connect(place: Place, *, create: bool, timeout: float = 0.0) -> Connection:
    """Connect to a folder's database, which `create` allows to be made, to a server by its URL, or through a client.

    A writer waits `timeout` seconds for another writer. Chroma writes even to answer, so of a folder
    that cannot be written to it gets a temporary copy.

    Raises:
        InvalidParameter: `place` is none of these.
        NoIndex: The folder has no database, and `create` is False.
        StorageError: The folder cannot be used, or no server answers.
        IndexInUse: Another process is writing to the folder, and its database is yet to be created.
    """
    if isinstance(place, ClientAPI):
        settings = place.get_settings()
        lock = WriterLock(Path(settings.persist_directory) if settings.is_persistent else None, timeout)
        return Connection(place, lock, place, owned=False)
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise InvalidParameter(
            f"place={place!r:.80} must be a folder, a server's URL such as 'http://localhost:8000', or one of "
            "Chroma's clients"
        )
    if isinstance(place, str) and "://" in place:
        return Connection(_http_client(place), WriterLock(None, timeout), place, owned=True)
    folder = Path(place)
    lock = WriterLock(folder, timeout)
    with translated_errors(folder):
        if not (folder / DATABASE).exists():
            if not create:
                raise NoIndex(f"there is no database in {folder}; give an embedder to make one")
            folder.mkdir(parents=True, exist_ok=True)
            sync(folder.parent)
            with lock:
                _create_database(folder)
        if _is_writable(folder):
            return Connection(_persistent_client(folder), lock, place, owned=True)
        copy = TemporaryDirectory(prefix="eddy-")
        copy_database(folder, Path(copy.name))
        return Connection(_persistent_client(Path(copy.name)), lock, place, owned=True, copy=copy)


def _is_writable(folder: Path) -> bool:
    paths = (folder, *(folder / name for name in (DATABASE, ROW_LOCK)))
    return all(os.access(path, os.W_OK) for path in paths if path.exists())


def client_settings() -> Settings:
    """Settings of the clients that this package makes: no telemetry."""
    return Settings(anonymized_telemetry=False)


def memory_client() -> ClientAPI:
    """A client of a new database in memory; Chroma shares its default one among all such clients of a process."""
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
        return chromadb.HttpClient(parts.hostname, port, ssl=secure, settings=client_settings())


def _persistent_client(folder: Path) -> ClientAPI:
    try:
        return chromadb.PersistentClient(str(folder), settings=client_settings())
    except AttributeError as error:
        # Chroma fails to clean up after a client that it could not make, which hides the first error.
        raise InternalError(str(error.__context__ or error)) from error


def _create_database(folder: Path) -> None:
    """Create a database under another name and rename it when it is complete; Chroma cannot open a partial one."""
    if (folder / DATABASE).exists():
        return
    part = folder / ".chroma.part"
    shutil.rmtree(part, ignore_errors=True)
    _persistent_client(part).close()  # type: ignore[attr-defined]  # of the concrete client
    os.replace(part / DATABASE, folder / DATABASE)
    shutil.rmtree(part)
