"""`open_collection`: open a Chroma collection only with the embedding function that made its vectors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from chromadb.api import ClientAPI
from chromadb.api.models.Collection import Collection
from chromadb.errors import NotFoundError

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.storage.names import check_collection_name
from eddy_embed.encoding.validation import check_kind
from eddy_embed.errors import FingerprintMismatch
from eddy_embed.integrations.documents import FINGERPRINT
from eddy_embed.utils.settings import contrast


def open_collection(
    client: ClientAPI,
    name: str,
    function: EddyEmbeddingFunction,
    *,
    configuration: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Collection:
    """Open a collection, or create it in cosine space; refuse one whose vectors another embedder made.

    Chroma itself compares only the functions' names, so `get_collection` and `get_or_create_collection` silently accept
    another model or method.

    Args:
        client: Any of Chroma's clients.
        name: The collection's name.
        function: Embeds documents and queries.
        configuration: Chroma's further settings of a new collection.
        metadata: Metadata of a new collection.

    Raises:
        InvalidParameter: An argument has the wrong type.
        FingerprintMismatch: The collection was made with another function, or with another configuration of this one.
    """
    check_kind("function", function, EddyEmbeddingFunction, "an EddyEmbeddingFunction")
    check_kind("client", client, ClientAPI, "one of Chroma's clients, such as chromadb.PersistentClient(path)")
    check_collection_name(name)
    check_kind("configuration", configuration, Mapping | None, "a dictionary, or None")
    check_kind("metadata", metadata, Mapping | None, "a dictionary, or None")
    try:
        collection = client.get_collection(name, embedding_function=None)
    except NotFoundError:
        # Another process may create it first, so what comes back is checked too.
        collection = client.get_or_create_collection(
            name,
            embedding_function=function,  # type: ignore[arg-type]
            configuration=dict(configuration or {}),  # type: ignore[arg-type]
            # Chroma replaces a stored configuration before it asks whether it may.
            metadata={**(metadata or {}), FINGERPRINT: function.fingerprint},
        )
    _check_embedder(collection, function)
    _check_space(collection)
    return client.get_collection(name, embedding_function=function)  # type: ignore[arg-type]


def _check_embedder(collection: Collection, function: EddyEmbeddingFunction) -> None:
    stored = collection.configuration_json.get("embedding_function") or {}
    kind, config = stored.get("name"), stored.get("config") or {}
    if kind == function.name():
        recorded = (collection.metadata or {}).get(FINGERPRINT)
        if {config.get("fingerprint"), recorded or function.fingerprint} != {function.fingerprint}:
            differs = recorded not in (None, config.get("fingerprint"))
            replaced = f", put in place of fingerprint {recorded}" if differs else ""
            raise FingerprintMismatch(
                f"Collection {collection.name!r} was {contrast(config, function.get_config())}.\nStored "
                f"{config!r}{replaced}, given {function.get_config()!r}: their vectors cannot be compared. Give the "
                "function it was made with, or embed the documents again into another collection."
            )
        return
    if kind is not None:
        raise FingerprintMismatch(
            f"Collection {collection.name!r} was made with Chroma's embedding function {kind!r}, opened with "
            f"`{function.model_name}`.\nTheir vectors cannot be compared; use another collection."
        )
    rows: Any = collection.get(limit=1, include=["metadatas"])["metadatas"]
    made_by = (rows[0] or {}).get(FINGERPRINT) if rows else None
    if rows and made_by != function.fingerprint:
        raise FingerprintMismatch(
            f"Collection {collection.name!r} holds vectors of {'an unknown' if made_by is None else 'another'} "
            f"embedder, opened with `{function.settings.method}` on `{function.model_name}`.\nTheir fingerprint: "
            f"{made_by}, here {function.fingerprint}; use another collection."
        )


def _check_space(collection: Collection) -> None:
    configuration = collection.configuration_json
    space = next((c.get("space") for kind in ("hnsw", "spann") if (c := configuration.get(kind))), None)
    if space != "cosine":
        warnings.warn(
            f"Collection {collection.name!r} is in {space!r} space: distances are not 1 minus the cosine. A collection "
            "that open_collection creates is in cosine space.",
            stacklevel=3,
        )
