"""The collections of an index: made, opened, written in batches, read in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from chromadb.api.models.Collection import Collection
from chromadb.errors import NotFoundError

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.storage.batches import byte_limited_slices, slices
from chroma_eddy.storage.connection import Connection
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, MAIN, PARTS, RAW, SENTENCES, TRANSFORM, new_token
from chroma_eddy.storage.pages import Rows, read_pages
from chroma_eddy.storage.recipe import FORMAT, Recipe

if TYPE_CHECKING:
    import numpy as np
    from chromadb.api import ClientAPI
    from numpy.typing import NDArray

    from chroma_eddy.storage.locks import Lock

# The search is approximate; with a wide beam it misses next to nothing at the size of most libraries.
_COSINE_CONFIG = {"hnsw": {"space": "cosine", "ef_search": 400, "ef_construction": 200}}
# Vectors come back bit by bit; in cosine space they are kept as a direction and a length, and come back rounded.
_L2_CONFIG = {"hnsw": {"space": "l2"}}


class Store:
    """An index's collections under one name."""

    def __init__(self, connection: Connection, name: str) -> None:
        """Open nothing yet.

        Args:
            connection: Where they are.
            name: Of the main one; those of the others begin with it.
        """
        self.connection, self.name, self.place = connection, name, connection.place
        self._generation, self._collections = connection.generation, dict[str, Collection]()
        self._max_batch_size = 0

    @property
    def client(self) -> ClientAPI:
        """Chroma's client, as it is now."""
        return self.connection.client

    @property
    def lock(self) -> Lock:
        """Held while anything is written."""
        return self.connection.lock

    # --- Collections

    def find(self, part: str = MAIN) -> Collection | None:
        """A collection, None where there is none."""
        if self._generation != self.connection.generation:
            self.forget()
        if part not in self._collections:
            found = self._open_collection(part)
            if found is None:
                return None
            self._collections[part] = found
        return self._collections[part]

    def _open_collection(self, part: str) -> Collection | None:
        with translated_errors(self.place):
            self.connection.repair()
            try:
                found = self.client.get_collection(self.name + part, embedding_function=None)
            except NotFoundError:
                return None
            # Heard of before vectors are read: what is written meanwhile is then noticed as a change.
            if part == MAIN:
                self._is_current(found)
            elif not self.connection.has_seen(self.name):
                self.find()
            self.connection.load_vectors(found)
            return found

    def _is_current(self, found: Collection) -> bool:
        """Whether the index's last change, as its main collection's metadata have it, has been read."""
        about = found.metadata or {}
        told = about.get("eddy_written")
        return told is None or self.connection.is_current(
            self.name, str(told), changing=bool(about.get("eddy_changing"))
        )

    @property
    def identity(self) -> Any:
        """Of the main collection that has the name now; None where there is none."""
        found = self._open_collection(MAIN)
        return None if found is None else found.id

    def refresh(self, *, anew: bool = False) -> Any:
        """Read anew what another process has written, if one has.

        Args:
            anew: Whether or not one seems to have.

        Returns:
            The identity of the main collection that has the name now; None where there is none.
        """
        found = self._open_collection(MAIN)
        if anew or (found is not None and not self._is_current(found)):
            self.connection.reopen()
        return None if found is None else found.id

    def begin_writing(self) -> None:
        """As `notice`, for one who begins to write: if rows are changing now, who changed them was killed."""
        killed = bool(self.metadata().get("eddy_changing"))
        self.refresh(anew=killed)
        self.connection.clear_changing(self.name)
        if killed:
            self.mark_written()

    def collection(self, part: str = MAIN) -> Collection:
        """A collection that is there.

        Raises:
            ForeignCollection: It is not there.
        """
        found = self.find(part)
        if found is None:
            raise ForeignCollection(
                f"collection {self.name + part!r} is gone, without which index {self.name!r} cannot be used: something "
                "else has deleted it; delete the index's other collections, and make it anew"
            )
        return found

    def recipe(self) -> Recipe | None:
        """What made the index; None where there is none.

        Raises:
            ForeignCollection: A collection of that name was made by something else.
        """
        found = self.find()
        if found is None:
            return None
        recipe = Recipe.of(self.metadata())
        if recipe is None:
            others = {"eddy_fingerprint"} & set(found.metadata or {})
            by = "open_collection" if others else "something else"
            if (found.metadata or {}).get("eddy_format", FORMAT) != FORMAT:
                by = "another version of this library"
            raise ForeignCollection(
                f"collection {self.name!r} was made by {by}, not as an index: choose another name; it is left as it is"
            )
        return recipe

    def metadata(self) -> dict[str, Any]:
        """The main collection's, as they are now."""
        self._collections.pop(MAIN, None)
        found = self.find()
        return dict((found.metadata if found is not None else None) or {})

    def create(self, recipe: Recipe, function: Any, **more: Any) -> None:
        """Make the collections; the main one comes last, since the others belong to it.

        Args:
            recipe: What will make the vectors.
            function: The embedding function by which Chroma itself embeds questions to the main collection.
            **more: Further metadata of the main one.
        """
        for part in (DOCUMENTS, SENTENCES, RAW):
            if self.find(part) is not None:  # of an index whose main collection somebody has deleted
                self.open_or_create(part)
                self.drop(part)
        for part in (DOCUMENTS, *((SENTENCES,) if recipe.sentence_vectors else ())):
            self.open_or_create(part)
        told = new_token()
        self.open_or_create(MAIN, {**recipe.metadata, "eddy_written": told, **more}, function)
        self.connection.record_change(self.name, told)

    def open_or_create(self, part: str, metadata: Mapping[str, Any] | None = None, function: Any = None) -> Collection:
        """Make one collection, or open it, if it is one of ours."""
        told = dict(metadata or {"eddy_format": FORMAT, "eddy_part": part})
        with translated_errors(self.place):
            found = self.client.get_or_create_collection(
                self.name + part,
                embedding_function=function,
                configuration=_L2_CONFIG if part == TRANSFORM else _COSINE_CONFIG,  # type: ignore[arg-type]
                metadata=told,
            )
            self.connection.load_vectors(found)
        if (found.metadata or {}).get("eddy_format") != FORMAT:
            raise ForeignCollection(
                f"collection {found.name!r} was made by something else, and index {self.name!r} needs the name: choose "
                "another name for the index; it is left as it is"
            )
        self._collections[part] = found
        return found

    def drop(self, part: str) -> None:
        """Delete a collection, if it is there."""
        self._collections.pop(part, None)
        with translated_errors(self.place):
            try:
                self.client.delete_collection(self.name + part)
            except NotFoundError:
                return
            self.connection.delete_stale_backups()

    def drop_all(self) -> None:
        """Delete the index's collections."""
        for part in reversed(PARTS):  # without its main collection, an index is none
            self.drop(part)

    def with_suffix(self, suffix: str) -> Store:
        """The collections of the index that is to take this one's place, or of the one that has lost it."""
        return Store(self.connection, self.name + suffix)

    def rename(self, part: str, name: str) -> None:
        """Give a collection another name."""
        with translated_errors(self.place):
            self.collection(part).modify(name=name)
        self._collections.pop(part)

    def update_metadata(self, **values: Any) -> None:
        """Change entries of the main collection's metadata."""
        kept = {name: value for name, value in self.metadata().items() if value is not None}
        with translated_errors(self.place):
            self.collection().modify(metadata={**kept, **values})
        self._collections.pop(MAIN)

    def mark_written(self) -> None:
        """Tell readers that rows have changed."""
        told = new_token()
        self.update_metadata(eddy_written=told, eddy_changing=False)
        self.connection.record_change(self.name, told)

    def end_change(self) -> None:
        """As `touch`, where rows have changed since the last time."""
        if self.connection.is_changing(self.name):
            self.mark_written()

    def _begin_change(self) -> None:
        """Say that rows are about to change, since one who is killed at it says nothing more."""
        if not self.connection.is_changing(self.name) and self.find() is not None:
            self.update_metadata(eddy_changing=True)
            self.connection.set_changing(self.name)

    def count(self, part: str) -> int:
        """Rows of a collection, 0 where there is none."""
        found = self.find(part)
        with translated_errors(self.place):
            return 0 if found is None else found.count()

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Be the only one that writes.

        Raises:
            IndexInUse: Another process is writing.
            StorageError: The folder cannot be written to.
        """
        with ExitStack() as held:
            with translated_errors(self.place):
                held.enter_context(self.lock)
            yield

    def close(self) -> None:
        """Let go of the database's files."""
        self._collections.clear()
        self.connection.close()

    def forget(self) -> None:
        """Open the collections anew when they are next used."""
        self._generation = self.connection.generation
        self._collections.clear()

    # --- Rows

    def upsert(
        self,
        part: str,
        ids: Sequence[str],
        vectors: NDArray[np.float32],
        metadatas: Sequence[dict[str, Any]],
        texts: Sequence[str] | None = None,
    ) -> None:
        """Write rows, in batches that the database takes."""
        self._begin_change()
        collection = self.collection(part)
        for at in byte_limited_slices(len(ids), vectors.shape[1], texts, self.max_batch_size):
            with translated_errors(self.place), self.connection.lock_rows(collection):
                collection.upsert(
                    ids=list(ids[at]),
                    embeddings=vectors[at],
                    metadatas=list(metadatas[at]),
                    documents=list(texts[at]) if texts is not None else None,
                )

    def update_documents(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """Change entries of documents' rows, by id; what is not about vectors is seen at once by all."""
        if not rows:
            return
        ids, values = list(rows), list(rows.values())
        collection = self.collection(DOCUMENTS)
        for at in slices(len(ids), self.max_batch_size):
            with translated_errors(self.place), self.connection.lock_rows(collection):
                collection.update(ids=ids[at], metadatas=values[at])  # type: ignore[arg-type]

    def delete(self, part: str, ids: Sequence[str] | None = None, where: Any = None) -> int:
        """Delete rows by id, or those that meet a condition; their number."""
        collection = self.find(part)
        if collection is None:
            return 0
        if ids is None:
            with translated_errors(self.place):
                ids = collection.get(where=where, include=[])["ids"]
        if ids:
            self._begin_change()
            collection = self.collection(part)
        for at in slices(len(ids), self.max_batch_size):
            with translated_errors(self.place), self.connection.lock_rows(collection):
                collection.delete(ids=list(ids[at]))
        return len(ids)

    def get(self, part: str, *, ids: Sequence[str] | None = None, where: Any = None, **kinds: bool) -> Rows:
        """Rows by id or condition, or all.

        Args:
            part: Of which collection.
            ids: Which; those that are not there are left out.
            where: Which.
            **kinds: What is wanted beside the ids: `metadatas`, `documents`, `embeddings`.
        """
        return Rows.concatenate(self.pages(part, ids=ids, where=where, **kinds))

    def pages(self, part: str, *, ids: Sequence[str] | None = None, where: Any = None, **kinds: bool) -> Iterator[Rows]:
        """As `get`, some at a time."""
        return read_pages(self.collection(part), self.place, ids, where, kinds)

    @property
    def max_batch_size(self) -> int:
        """Most rows that the database takes at a time."""
        if not self._max_batch_size:
            with translated_errors(self.place):
                self._max_batch_size = self.client.get_max_batch_size()
        return self._max_batch_size
