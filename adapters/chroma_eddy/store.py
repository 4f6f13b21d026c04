"""The collections of an index: made, opened, written in batches, read in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from chromadb.errors import NotFoundError

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.locking import Lock, failures
from chroma_eddy.names import DOCUMENTS, MAIN, RAW, SENTENCES, TRANSFORM, token
from chroma_eddy.recipe import FORMAT, Recipe

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection
    from numpy.typing import NDArray

PAGE = 1000
"""Rows that are read at a time."""
BATCH_BYTES = 8 * 2**20
"""Most bytes that are sent at a time: a server refuses requests of 40 megabytes, and vectors grow by a third there."""
# The search is approximate; with a wide beam it misses next to nothing at the size of most libraries.
_SEARCHED = {"hnsw": {"space": "cosine", "ef_search": 400, "ef_construction": 200}}
# Vectors come back bit by bit; in cosine space they are kept as a direction and a length, and come back rounded.
_EXACT = {"hnsw": {"space": "l2"}}


@dataclass(frozen=True)
class Rows:
    """Rows of a collection; what was not asked for is empty."""

    ids: list[str]
    metadatas: list[dict[str, Any]]
    texts: list[str]
    vectors: NDArray[np.float32]


class Store:
    """An index's collections under one name."""

    def __init__(self, client: ClientAPI, name: str, lock: Lock, place: Any) -> None:
        """Open nothing yet.

        Args:
            client: Where they are.
            name: Of the main one; those of the others begin with it.
            lock: To be held while anything is written.
            place: For messages.
        """
        self.client, self.name, self.lock = client, name, lock
        self.place = lock.folder or (place if isinstance(place, str) else None)
        self._open: dict[str, Collection] = {}
        self._limit = 0

    # --- Collections

    def find(self, part: str = MAIN) -> Collection | None:
        """A collection, None where there is none."""
        if part not in self._open:
            with failures(self.place):
                try:
                    self._open[part] = self.client.get_collection(self.name + part, embedding_function=None)
                except NotFoundError:
                    return None
        return self._open[part]

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
        self._open.pop(MAIN, None)
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
                self.make(part)
                self.drop(part)
        for part in (DOCUMENTS, *((SENTENCES,) if recipe.sentence_vectors else ())):
            self.make(part)
        self.make(MAIN, {**recipe.metadata, "eddy_written": token(), **more}, function)

    def make(self, part: str, metadata: Mapping[str, Any] | None = None, function: Any = None) -> Collection:
        """Make one collection, or open it, if it is one of ours."""
        told = dict(metadata or {"eddy_format": FORMAT, "eddy_part": part})
        with failures(self.place):
            found = self.client.get_or_create_collection(
                self.name + part,
                embedding_function=function,
                configuration=_EXACT if part == TRANSFORM else _SEARCHED,  # type: ignore[arg-type]
                metadata=told,
            )
        if (found.metadata or {}).get("eddy_format") != FORMAT:
            raise ForeignCollection(
                f"collection {found.name!r} was made by something else, and index {self.name!r} needs the name: choose "
                "another name for the index; it is left as it is"
            )
        self._open[part] = found
        return found

    def drop(self, part: str) -> None:
        """Delete a collection, if it is there."""
        self._open.pop(part, None)
        with failures(self.place):
            try:
                self.client.delete_collection(self.name + part)
            except NotFoundError:
                pass

    def rename(self, part: str, name: str) -> None:
        """Give a collection another name."""
        with failures(self.place):
            self.collection(part).modify(name=name)
        self._open.pop(part)

    def update(self, **values: Any) -> None:
        """Change entries of the main collection's metadata."""
        kept = {name: value for name, value in self.metadata().items() if value is not None}
        with failures(self.place):
            self.collection().modify(metadata={**kept, **values})
        self._open.pop(MAIN)

    def touch(self) -> None:
        """Tell readers that rows have changed."""
        self.update(eddy_written=token())

    def count(self, part: str) -> int:
        """Rows of a collection, 0 where there is none."""
        found = self.find(part)
        with failures(self.place):
            return 0 if found is None else found.count()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the only one that writes.

        Raises:
            IndexInUse: Another process is writing.
            StorageError: The folder cannot be written to.
        """
        with ExitStack() as held:
            with failures(self.place):
                held.enter_context(self.lock)
            yield

    def close(self) -> None:
        """Let go of the database's files."""
        self._open.clear()
        self.client.close()  # type: ignore[attr-defined]  # of the concrete client

    def forget(self) -> None:
        """Open the collections anew when they are next used."""
        self._open.clear()

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
        collection = self.collection(part)
        for at in self._batches(ids, vectors, texts):
            with failures(self.place):
                collection.upsert(
                    ids=list(ids[at]),
                    embeddings=vectors[at],
                    metadatas=list(metadatas[at]),
                    documents=list(texts[at]) if texts is not None else None,
                )

    def mark(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """Change entries of documents' rows, by id."""
        ids, values = list(rows), list(rows.values())
        for at in self._slices(len(ids)):
            with failures(self.place):
                self.collection(DOCUMENTS).update(ids=ids[at], metadatas=values[at])  # type: ignore[arg-type]

    def delete(self, part: str, ids: Sequence[str] | None = None, where: Any = None) -> int:
        """Delete rows by id, or those that meet a condition; their number."""
        if self.find(part) is None:
            return 0
        with failures(self.place):
            if ids is None:
                ids = self.collection(part).get(where=where, include=[])["ids"]
            for at in self._slices(len(ids)):
                self.collection(part).delete(ids=list(ids[at]))
        return len(ids)

    def get(self, part: str, *, ids: Sequence[str] | None = None, where: Any = None, **kinds: bool) -> Rows:
        """Rows by id or condition, or all.

        Args:
            part: Of which collection.
            ids: Which; those that are not there are left out.
            where: Which.
            **kinds: What is wanted beside the ids: `metadatas`, `documents`, `embeddings`.
        """
        pages = list(self.pages(part, ids=ids, where=where, **kinds))
        vectors = [page.vectors for page in pages if len(page.vectors)]
        return Rows(
            [id_ for page in pages for id_ in page.ids],
            [row for page in pages for row in page.metadatas],
            [text for page in pages for text in page.texts],
            np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32),
        )

    @staticmethod
    def none() -> Rows:
        """No rows."""
        return Rows([], [], [], np.zeros((0, 0), np.float32))

    def pages(self, part: str, *, ids: Sequence[str] | None = None, where: Any = None, **kinds: bool) -> Iterator[Rows]:
        """As `get`, some at a time."""
        include: Any = [kind for kind, wanted in kinds.items() if wanted]
        collection = self.collection(part)
        with failures(self.place):
            asked = range(0, collection.count() if ids is None else len(ids), PAGE)
        for at in asked:
            with failures(self.place):
                if ids is not None:
                    got = collection.get(ids=list(ids[at : at + PAGE]), where=where, include=include)
                else:
                    got = collection.get(where=where, limit=PAGE, offset=at, include=include)
            if not got["ids"]:
                if ids is None:
                    return
                continue
            vectors = got["embeddings"]
            yield Rows(
                got["ids"],
                [dict(row or {}) for row in got["metadatas"] or []],
                list(got["documents"] or []),
                np.zeros((0, 0), np.float32) if vectors is None else np.asarray(vectors, np.float32),
            )

    def _batches(
        self, ids: Sequence[str], vectors: NDArray[np.float32], texts: Sequence[str] | None
    ) -> Iterator[slice]:
        start, size = 0, 0
        row = vectors.shape[1] * 6 + 1000
        for at in range(len(ids)):
            own = row + (len(texts[at]) * 4 if texts is not None else 0)
            if at > start and (at - start == self.limit or size + own > BATCH_BYTES):
                yield slice(start, at)
                start, size = at, 0
            size += own
        if len(ids):
            yield slice(start, len(ids))

    def _slices(self, count: int) -> Iterator[slice]:
        return (slice(at, at + self.limit) for at in range(0, count, self.limit))

    @property
    def limit(self) -> int:
        """Most rows that the database takes at a time."""
        if not self._limit:
            with failures(self.place):
                self._limit = self.client.get_max_batch_size()
        return self._limit
