"""Where the database of a store is, by the names that LangChain's `Chroma` has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import chromadb
from chromadb.config import Settings

from chroma_eddy import memory_client
from eddy_embed.errors import InvalidParameter

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

_SERVER = ("port", "headers", "ssl")


def database_place(given: Mapping[str, Any]) -> str | ClientAPI:
    """Return a folder, a server's URL, or a client; in memory if none is named.

    Raises:
        InvalidParameter: There is more than one database, or an argument goes with another kind.
    """
    places = {name: given[name] for name in ("persist_directory", "client", "host", "chroma_cloud_api_key")}
    named = [name for name, value in places.items() if value is not None]
    if len(named) > 1:
        raise InvalidParameter(f"give one place of the database, not {' and '.join(f'{name}=' for name in named)}")
    if "chroma_cloud_api_key" in named:
        raise InvalidParameter("for Chroma's cloud, give a client: client=chromadb.CloudClient(...)")
    kind = named[0] if named else ""
    if stray := [name for name in _SERVER if given[name] and kind != "host"]:
        raise InvalidParameter(f"{stray[0]}={given[stray[0]]!r:.60} belongs to host=, the address of a server")
    more = {name: given[name] for name in ("tenant", "database", "client_settings") if given[name] is not None}
    if kind == "client" and more:
        raise InvalidParameter(f"{min(more)}= is chosen where the client is made; leave it out")
    settings = more.pop("client_settings", None) or Settings(anonymized_telemetry=False)
    if kind == "host":
        secure = bool(given["ssl"])
        port = given["port"] or (443 if secure else 8000)
        if not more and not given["headers"] and given["client_settings"] is None:
            return f"{'https' if secure else 'http'}://{given['host']}:{port}"
        return chromadb.HttpClient(given["host"], port, secure, given["headers"], settings=settings, **more)
    if kind == "persist_directory" and (more or given["client_settings"] is not None):
        return chromadb.PersistentClient(given["persist_directory"], settings=settings, **more)
    if not kind and (more or given["client_settings"] is not None):
        return chromadb.Client(settings, **more)
    return places[kind] if kind else memory_client()
