"""Where an index lives: a folder, a server, or a client that somebody made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from chromadb.api import ClientAPI

from chroma_eddy.errors import NoIndex
from chroma_eddy.storage.connection import Connection
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.locks import Lock
from eddy_embed.errors import InvalidParameter

if TYPE_CHECKING:
    from chromadb.config import Settings

    Place = str | os.PathLike[str] | ClientAPI

_DATABASE = "chroma.sqlite3"
_UNFINISHED = ".chroma.part"
"""A database that is being made."""


def connect(place: Place, *, create: bool, timeout: float = 0.0) -> Connection:
    """A client, and the locks of those who write and read there.

    Args:
        place: A folder, a server's URL, or one of Chroma's clients.
        create: Whether to make a database in a folder that has none.
        timeout: Seconds that a writer waits for another one.

    Raises:
        InvalidParameter: It is none of these.
        NoIndex: The folder has no database.
        StorageError: The folder cannot be used, or no server answers.
        IndexInUse: Another process is writing where the folder's database is yet to be made.
    """
    if isinstance(place, ClientAPI):
        settings = place.get_settings()
        lock = Lock(Path(settings.persist_directory) if settings.is_persistent else None, timeout)
        return Connection(place, lock, place, owned=False)
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise InvalidParameter(
            f"place={place!r:.80} must be a folder, a server's URL such as 'http://localhost:8000', or one of "
            "Chroma's clients"
        )
    if isinstance(place, str) and "://" in place:
        return Connection(_http_client(place), Lock(None, timeout), place, owned=True)
    folder = Path(place)
    lock = Lock(folder, timeout)
    with translated_errors(folder):
        if not (folder / _DATABASE).exists():
            if not create:
                raise NoIndex(f"there is no database in {folder}; give an embedder to make one")
            folder.mkdir(parents=True, exist_ok=True)
            with lock:
                _create_database(folder)
        return Connection(_persistent_client(folder), lock, place, owned=True)


def _http_client(url: str) -> ClientAPI:
    parts = urlsplit(url)
    plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise InvalidParameter(
            f"place={url!r:.80} must read http://host:port or https://host:port; for anything more, such as headers "
            "or a tenant, give a client: chromadb.HttpClient(...)"
        )
    import chromadb

    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 8000)
    with translated_errors(url):
        return chromadb.HttpClient(parts.hostname, port, ssl=secure, settings=client_settings())


def _create_database(folder: Path) -> None:
    """Make a database, which gets its name only when it is whole: one cut short could never be opened again."""
    if (folder / _DATABASE).exists():
        return
    part = folder / _UNFINISHED
    shutil.rmtree(part, ignore_errors=True)
    _persistent_client(part).close()  # type: ignore[attr-defined]  # of the concrete client
    os.replace(part / _DATABASE, folder / _DATABASE)
    shutil.rmtree(part)


def _persistent_client(folder: Path) -> ClientAPI:
    import chromadb
    from chromadb.errors import InternalError

    try:
        return chromadb.PersistentClient(str(folder), settings=client_settings())
    except AttributeError as error:
        # Chroma cannot clean up after a client that it could not make, and hides why it could not.
        raise InternalError(str(error.__context__ or error)) from error


def client_settings() -> Settings:
    """Of clients that are made here: they report nothing to anyone."""
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False)
