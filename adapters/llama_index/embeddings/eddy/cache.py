"""A wrapper for LlamaIndex's `embeddings_cache`, whose keys do not distinguish queries from texts."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from llama_index.core.storage.kvstore.types import DEFAULT_COLLECTION, BaseKVStore

from eddy_embed.integrations import EmbedderOwner, check_kind

# The base class looks up queries and texts by the same key; this says which of the two it embeds.
_role: ContextVar[str] = ContextVar("eddy_embedding_role", default="document")


@contextlib.contextmanager
def query_role() -> Iterator[None]:
    """Look up queries, not texts, inside this block."""
    token = _role.set("query")
    try:
        yield
    finally:
        _role.reset(token)


class RoleKeyedCache(BaseKVStore):
    """Keeps queries, texts, and vectors of different embedders in separate collections of the user's store.

    The owner's fingerprint is part of each collection's name, so that only an embedder that would compute the same
    vector gets a stored one.
    """

    def __init__(self, store: BaseKVStore, owner: EmbedderOwner) -> None:
        check_kind("embeddings_cache", store, BaseKVStore, "a key-value store of LlamaIndex, such as SimpleKVStore()")
        self.store = store
        # Weak: a cycle would keep the model's weights in memory until the next full garbage collection.
        self._owner = weakref.ref(owner)

    def _collection(self, collection: str) -> str:
        owner = self._owner()
        if owner is None:
            raise ReferenceError("The embedding object of this cache is gone; use the store itself: cache.store")
        return f"{collection}/{_role.get()}/{owner.fingerprint}"

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """Store a value."""
        self.store.put(key, val, collection=self._collection(collection))

    async def aput(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """Store a value."""
        await self.store.aput(key, val, collection=self._collection(collection))

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """The value of a key, or None."""
        return self.store.get(key, collection=self._collection(collection))

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """The value of a key, or None."""
        return await self.store.aget(key, collection=self._collection(collection))

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """Every value of a collection."""
        return self.store.get_all(collection=self._collection(collection))

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """Every value of a collection."""
        return await self.store.aget_all(collection=self._collection(collection))

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Remove a key; whether it was there."""
        return self.store.delete(key, collection=self._collection(collection))

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Remove a key; whether it was there."""
        return await self.store.adelete(key, collection=self._collection(collection))
