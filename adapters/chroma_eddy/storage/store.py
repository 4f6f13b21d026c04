"""`Store`: the rows of an index's collections, written in batches and read in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from chromadb.api.models.Collection import Collection
from numpy.typing import NDArray

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.storage.collection_pair import CollectionPair
from chroma_eddy.storage.database_file import erase_texts
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS
from chroma_eddy.storage.pages import Rows, pages, slices
from chroma_eddy.storage.vectors import ROW, are_alike
from eddy_embed.integrations.documents import grouped_by_size

_STRETCHES = 10
"""Number of places from which a sample of a large collection is read."""
BATCH_BYTES = 8 * 2**20
"""Most bytes in a batch: a server refuses requests of 40 MB, and encoding makes vectors a third larger."""


class Store(CollectionPair):
    """The rows of an index."""

    def vectors_of(self, kind: str, rows: Rows) -> NDArray[np.float32]:
        """Vectors of rows that were read with their metadata, shape (rows, dimension)."""
        vectors = self.vectors
        numbers = [] if vectors is None else vectors.numbers(rows.metadatas)
        if vectors is not None and min(numbers, default=0) >= 0:
            return vectors.rows.read(numbers)
        got = self.get(kind, ids=rows.ids, embeddings=True)
        by_id = dict(zip(got.ids, got.vectors, strict=True))
        if gone := [id_ for id_ in rows.ids if id_ not in by_id]:
            raise ForeignCollection(f"row {gone[0]!r} of index {self.name!r} is gone: something else has deleted it")
        return np.stack([by_id[id_] for id_ in rows.ids]) if rows.ids else got.vectors

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

    def upsert(self, kind: str, rows: Rows) -> list[dict[str, Any]]:
        """Write rows in batches, in place of those of the same ids; return their metadata as they are stored.

        A row whose metadata name a vector that is stored has that one.

        Where a vector is replaced in the HNSW graph, queries may no longer find others
        (https://github.com/chroma-core/chroma/issues/7758). So a row with the same text and vector gets its metadata
        alone, and any other is deleted before it is written again; but a document's row is never missing.
        """

        def row_bytes(number: int) -> int:
            return int(rows.vectors.shape[1]) * 6 + 1000 + (len(rows.texts[number]) * 4 if rows.texts else 0)

        stored = []
        with self.changing():
            for numbers in grouped_by_size(range(len(rows.ids)), row_bytes, self.max_batch_size, BATCH_BYTES):
                with translated_errors(self.place):
                    stored += self._upsert(self.collection(kind), rows.take(numbers), atomic=kind == DOCUMENTS)
        return stored

    def _upsert(self, collection: Collection, rows: Rows, *, atomic: bool) -> list[dict[str, Any]]:
        vectors = self.vectors
        include: Any = ["documents", "embeddings" if vectors is None else "metadatas"]
        present = Rows.parse(collection.get(ids=rows.ids, include=include))
        numbers = [] if vectors is None else vectors.numbers(present.metadatas)
        held = present.vectors if vectors is None else vectors.rows.read(numbers)
        known = {id_: at for at, id_ in enumerate(present.ids)}

        def is_same(at: int) -> bool:
            own = known.get(rows.ids[at])
            if own is None or (rows.texts and rows.texts[at] != present.texts[own]):
                return False
            return are_alike(rows.vectors[at], held[own])

        same = [at for at in range(len(rows.ids)) if is_same(at)]
        other = sorted(set(range(len(rows.ids))) - set(same))
        metadatas: Any = rows.metadatas
        if vectors is not None:
            named = {at: numbers[known[rows.ids[at]]] for at in same}
            new = [at for at in other if metadatas[at].get(ROW) is None]
            named |= zip(new, vectors.rows.append(rows.vectors[new]), strict=True)
            metadatas = [{**row, **({ROW: named[at]} if at in named else {})} for at, row in enumerate(metadatas)]
        if same:
            collection.update(ids=[rows.ids[at] for at in same], metadatas=[metadatas[at] for at in same])
        if replaced := [rows.ids[at] for at in other if rows.ids[at] in known and not atomic]:
            collection.delete(ids=replaced)
        if other:
            changed = rows.take(other)
            collection.upsert(changed.ids, changed.vectors, [metadatas[at] for at in other], changed.texts or None)
        return list(metadatas)

    def update_documents(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """Change metadata of documents' rows, by id."""
        ids, metadatas = list(rows), list(rows.values())
        for batch in slices(len(ids), self.max_batch_size):
            with translated_errors(self.place), self.changing():
                self.collection(DOCUMENTS).update(ids=ids[batch], metadatas=metadatas[batch])  # type: ignore[arg-type]

    def delete(self, kind: str, ids: Sequence[str] | None = None, where: Any = None) -> int:
        """Delete rows by id or by a condition on their metadata; return the number of ids, or of rows that met it."""
        collection = self.find(kind)
        if collection is None:
            return 0
        if ids is None:
            with translated_errors(self.place):
                ids = collection.get(where=where, include=[])["ids"]
        for batch in slices(len(ids), self.max_batch_size):
            with translated_errors(self.place), self.changing():
                self.collection(kind).delete(ids=list(ids[batch]))
        return len(ids)

    def erase(self) -> None:
        """Erase the texts of deleted rows from the database's file, which must be in a folder."""
        folder, lock = self.connection.folder, self.connection.row_lock
        assert folder is not None and lock is not None
        with translated_errors(self.place):
            with lock:
                erase_texts(folder)
            self.connection.reopen()

    def get(self, kind: str, *, ids: Sequence[str] | None = None, where: Any = None, **fields: bool) -> Rows:
        """Read rows by id or condition, or all rows, with the `fields` among `metadatas`, `documents`, `embeddings`."""
        return Rows.concatenate(self.pages(kind, ids=ids, where=where, **fields))

    def pages(
        self, kind: str, *, ids: Sequence[str] | None = None, where: Any = None, **fields: bool
    ) -> Iterator[Rows]:
        """As `get`, page by page."""
        with translated_errors(self.place):
            yield from pages(self.collection(kind), ids=ids, where=where, **fields)

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
