"""`Store`: the collections of an index: created, opened, written in batches, read in pages."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from chromadb.api import ClientAPI
from chromadb.api.models.Collection import Collection
from chromadb.errors import NotFoundError
from numpy.typing import NDArray

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.storage.connection import Connection
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, KINDS, MAIN, RAW, SENTENCES, TRANSFORM, WORDS
from chroma_eddy.storage.pages import PAGE_SIZE, Rows, slices, upsert
from chroma_eddy.storage.settings import FORMAT, IndexSettings
from eddy_embed.integrations import FINGERPRINT, grouped_by_size

# HNSW search is approximate; with this beam it misses next to nothing at the size of most libraries.
_COSINE_CONFIG = {"hnsw": {"space": "cosine", "ef_search": 400, "ef_construction": 200}}
# In L2 space Chroma returns vectors bit by bit; in cosine space it normalises them, and they come back rounded.
_L2_CONFIG = {"hnsw": {"space": "l2"}}
_STRETCHES = 10
"""Number of places from which a sample of a large collection is read."""
BATCH_BYTES = 8 * 2**20
"""Most bytes in a batch: a server refuses requests of 40 MB, and encoding makes vectors a third larger."""


class Store:
    """An index's collections under one name."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name, self.place, self.lock = connection, name, connection.place, connection.lock
        self._generation, self._collections = connection.generation, dict[str, Collection]()

    @property
    def client(self) -> ClientAPI:
        """Chroma's client; it changes when the connection is reopened."""
        client: ClientAPI = self.connection.client
        return client

    def close(self) -> None:
        """Close the client unless somebody else uses it."""
        self._collections.clear()
        self.connection.close()

    # --- Collections

    def find(self, kind: str = MAIN) -> Collection | None:
        """A collection; None if it does not exist."""
        if self._generation != self.connection.generation:
            self.forget()
        if kind not in self._collections:
            collection = self._open_collection(kind)
            if collection is None:
                return None
            self._collections[kind] = collection
        return self._collections[kind]

    def _open_collection(self, kind: str) -> Collection | None:
        with translated_errors(self.place):
            self.connection.repair()
            try:
                collection = self.client.get_collection(self.name + kind, embedding_function=None)
            except NotFoundError:
                return None
            # Record the last change before vectors are loaded: a write in between then counts as a new change.
            if kind == MAIN:
                self._is_current(collection)
            elif not self.connection.has_seen(self.name):
                self.find()
            self.connection.load_vectors(collection)
            return collection

    def _is_current(self, main: Collection) -> bool:
        metadata = main.metadata or {}
        token, changing = metadata.get("eddy_written"), bool(metadata.get("eddy_changing"))
        return token is None or self.connection.is_current(self.name, str(token), changing=changing)

    def collection(self, kind: str = MAIN) -> Collection:
        """A collection that must exist; ForeignCollection if it does not."""
        collection = self.find(kind)
        if collection is None:
            raise ForeignCollection(
                f"collection {self.name + kind!r} is gone, without which index {self.name!r} cannot be used: something "
                "else has deleted it; delete the index's other collections, and make it anew"
            )
        return collection

    def forget(self) -> None:
        """Drop the cached collections; they are opened again when they are next used."""
        self._generation = self.connection.generation
        self._collections.clear()

    def create(self, settings: IndexSettings, function: Any, **more: Any) -> None:
        """Create the collections, the main one last, with `more` metadata and Chroma's embedding function."""
        for kind in (DOCUMENTS, SENTENCES, RAW):
            if self.find(kind) is not None:  # left by an index whose main collection somebody deleted
                self.open_or_create(kind)
                self.drop(kind)
        for kind in (DOCUMENTS, *((SENTENCES,) if settings.sentence_vectors else ())):
            self.open_or_create(kind)
        token = uuid.uuid4().hex
        self.open_or_create(MAIN, {**settings.metadata, "eddy_written": token, **more}, function)
        self.connection.record_change(self.name, token)

    def open_or_create(self, kind: str, metadata: Mapping[str, Any] | None = None, function: Any = None) -> Collection:
        """Create a collection, or open it if this package created it; ForeignCollection if something else did."""
        with translated_errors(self.place):
            collection = self.client.get_or_create_collection(
                self.name + kind,
                embedding_function=function,
                # A copy: Chroma writes the embedding function into it.
                configuration=dict(_L2_CONFIG if kind == TRANSFORM else _COSINE_CONFIG),  # type: ignore[arg-type]
                metadata=dict(metadata or {"eddy_format": FORMAT, "eddy_kind": kind}),
            )
            self.connection.load_vectors(collection)
        if (collection.metadata or {}).get("eddy_format") != FORMAT:
            raise ForeignCollection(
                f"collection {collection.name!r} was made by something else, and index {self.name!r} needs the name: "
                "choose another name for the index; it is left as it is"
            )
        self._collections[kind] = collection
        return collection

    def drop(self, kind: str) -> None:
        """Delete a collection if it exists."""
        self._collections.pop(kind, None)
        with translated_errors(self.place):
            try:
                self.client.delete_collection(self.name + kind)
            except NotFoundError:
                return
            self.connection.delete_stale_backups()

    def drop_all(self) -> None:
        """Delete all collections, the main one first: the others are no index without it."""
        for kind in reversed(KINDS):
            self.drop(kind)

    def rename(self, kind: str, name: str) -> None:
        """Rename a collection."""
        with translated_errors(self.place):
            self.collection(kind).modify(name=name)
        self._collections.pop(kind)

    def with_suffix(self, suffix: str) -> Store:
        """The collections of the index that will replace this one (`NEXT`), or that it replaced (`OLD`)."""
        return Store(self.connection, self.name + suffix)

    # --- The main collection's metadata

    @property
    def words_folder(self) -> Path | None:
        """Folder of the words of the main collection; None on a server, or if the collection does not exist."""
        collection = self.find()
        folder = self.connection.folder
        return None if folder is None or collection is None else folder / WORDS / str(collection.id)

    @property
    def identity(self) -> Any:
        """Id of the main collection; None if it does not exist."""
        collection = self._open_collection(MAIN)
        return None if collection is None else collection.id

    def metadata(self) -> dict[str, Any]:
        """The main collection's metadata, read from the database; empty if it does not exist."""
        self._collections.pop(MAIN, None)
        collection = self.find()
        return dict((collection.metadata if collection is not None else None) or {})

    @property
    def made_by(self) -> dict[str, Any]:
        """Configuration of the main collection's embedding function, with `model_name` and `method`."""
        collection = self.find()
        stored = None if collection is None else collection.configuration_json.get("embedding_function")
        return dict((stored or {}).get("config") or {})

    def update_metadata(self, **values: Any) -> None:
        """Change entries of the main collection's metadata."""
        kept = {name: value for name, value in self.metadata().items() if value is not None}
        with translated_errors(self.place):
            self.collection().modify(metadata={**kept, **values})
        self._collections.pop(MAIN)

    def settings(self) -> IndexSettings | None:
        """The stored settings; None if the index does not exist; ForeignCollection if the name belongs to another."""
        collection = self.find()
        if collection is None:
            return None
        settings = IndexSettings.parse(self.metadata())
        if settings is None:
            metadata = collection.metadata or {}
            by = "open_collection" if FINGERPRINT in metadata else "something else"
            if metadata.get("eddy_format", FORMAT) != FORMAT:
                by = "another version of this library"
            raise ForeignCollection(
                f"collection {self.name!r} was made by {by}, not as an index: choose another name; it is left as it is"
            )
        return settings

    # --- Changes of this process and of others

    def refresh(self, *, force: bool = False) -> Any:
        """Reopen the connection if another process has written, or in any case (`force`); return as `identity`."""
        collection = self._open_collection(MAIN)
        if force or (collection is not None and not self._is_current(collection)):
            self.connection.reopen()
        return None if collection is None else collection.id

    def begin_writing(self) -> bool:
        """Read other processes' changes, under the writer's lock; return whether one was killed while it wrote."""
        killed = bool(self.metadata().get("eddy_changing"))
        self.refresh(force=killed)
        self.connection.set_changing(self.name, False)
        if killed:
            self.mark_written()
        return killed

    def _begin_change(self) -> None:
        """Mark the index as changing before its rows change, since a killed process cannot report what it changed."""
        if not self.connection.is_changing(self.name) and self.find() is not None:
            self.update_metadata(eddy_changing=True)
            self.connection.set_changing(self.name, True)

    def end_change(self) -> None:
        """Tell readers that rows have changed, if they have since `mark_written`."""
        if self.connection.is_changing(self.name):
            self.mark_written()

    def mark_written(self) -> None:
        """Tell readers that rows have changed."""
        token = uuid.uuid4().hex
        self.update_metadata(eddy_written=token, eddy_changing=False)
        self.connection.record_change(self.name, token)

    # --- Rows

    def count(self, kind: str) -> int:
        """Number of rows of a collection; 0 if it does not exist."""
        collection = self.find(kind)
        with translated_errors(self.place):
            return 0 if collection is None else collection.count()

    @cached_property
    def max_batch_size(self) -> int:
        """Most rows that the database accepts in a batch."""
        with translated_errors(self.place):
            return self.client.get_max_batch_size()

    def upsert(
        self,
        kind: str,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        metadatas: Sequence[dict[str, Any]],
        texts: Sequence[str] | None = None,
    ) -> None:
        """Write rows in batches, in place of those of the same ids; `vectors` has the shape (rows, dimension)."""
        self._begin_change()
        collection = self.collection(kind)
        atomic = kind not in (MAIN, SENTENCES)  # whose rows count only once their document's row names them

        def row_bytes(number: int) -> int:
            return int(vectors.shape[1]) * 6 + 1000 + (len(texts[number]) * 4 if texts is not None else 0)

        for numbers in grouped_by_size(range(len(ids)), row_bytes, self.max_batch_size, BATCH_BYTES):
            batch = slice(numbers[0], numbers[-1] + 1)
            with translated_errors(self.place), self.connection.lock_rows(collection):
                upsert(collection, ids[batch], vectors[batch], metadatas[batch], texts and texts[batch], atomic=atomic)

    def update_documents(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """Change metadata of documents' rows, by id; unlike vectors, other processes see metadata at once."""
        if not rows:
            return
        ids, metadatas = list(rows), list(rows.values())
        collection = self.collection(DOCUMENTS)
        for batch in slices(len(ids), self.max_batch_size):
            with translated_errors(self.place), self.connection.lock_rows(collection):
                collection.update(ids=ids[batch], metadatas=metadatas[batch])  # type: ignore[arg-type]

    def delete(self, kind: str, ids: Sequence[str] | None = None, where: Any = None) -> int:
        """Delete rows by id or by a condition on their metadata; return the number of ids, or of rows that met it."""
        collection = self.find(kind)
        if collection is None:
            return 0
        if ids is None:
            with translated_errors(self.place):
                ids = collection.get(where=where, include=[])["ids"]
        if ids:
            self._begin_change()
            collection = self.collection(kind)
        for batch in slices(len(ids), self.max_batch_size):
            with translated_errors(self.place), self.connection.lock_rows(collection):
                collection.delete(ids=list(ids[batch]))
        return len(ids)

    def erase(self) -> None:
        """Erase the texts of deleted rows from the database's file, which must be in a folder."""
        with translated_errors(self.place):
            self.connection.erase()

    def get(self, kind: str, *, ids: Sequence[str] | None = None, where: Any = None, **fields: bool) -> Rows:
        """Read rows by id or condition, or all rows, with the `fields` among `metadatas`, `documents`, `embeddings`."""
        return Rows.concatenate(self.pages(kind, ids=ids, where=where, **fields))

    def pages(
        self, kind: str, *, ids: Sequence[str] | None = None, where: Any = None, **fields: bool
    ) -> Iterator[Rows]:
        """As `get`, page by page."""
        collection = self.collection(kind)
        include: Any = [name for name, wanted in fields.items() if wanted]
        for start in count(0, PAGE_SIZE) if ids is None else range(0, len(ids), PAGE_SIZE):
            page: dict[str, Any] = {"limit": PAGE_SIZE, "offset": start}
            if ids is not None:
                page = {"ids": list(ids[start : start + PAGE_SIZE])}
            with translated_errors(self.place):
                got = collection.get(where=where, include=include, **page)
            if got["ids"]:
                yield Rows.parse(got)
            if ids is None and len(got["ids"]) < PAGE_SIZE:
                return

    def nearest_distances(self, kind: str, vectors: NDArray[np.float32]) -> list[float]:
        """Distances of vectors, shape (vectors, dimension), to the nearest rows of a collection; infinite without."""
        with translated_errors(self.place):
            got = self.collection(kind).query(query_embeddings=vectors, n_results=1, include=["distances"])
        return [own[0] if own else math.inf for own in got["distances"] or []]

    def sample(self, kind: str, size: int, **fields: bool) -> Iterator[Rows]:
        """As `pages`, of at most `size` rows of a collection, in a few evenly spread stretches: offsets cost time."""
        count, collection = self.count(kind), self.collection(kind)
        stretches = 1 if count <= size else min(_STRETCHES, size)
        include: Any = [name for name, wanted in fields.items() if wanted]
        for number in range(stretches):
            with translated_errors(self.place):
                got = collection.get(limit=size // stretches, offset=number * count // stretches, include=include)
            if got["ids"]:
                yield Rows.parse(got)
