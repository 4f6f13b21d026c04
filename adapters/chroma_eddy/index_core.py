"""`IndexCore`: an index's collections, settings and embedder, which queries and writers share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from chromadb.api.models.Collection import Collection
from chromadb.errors import InternalError, NotFoundError

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.errors import ForeignCollection, NoIndex, StorageError
from chroma_eddy.rows.documents import group_ids, read_documents
from chroma_eddy.rows.schema import DIGEST, DocumentRow
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, MAIN, NEXT
from chroma_eddy.storage.pages import PAGE_SIZE, Rows, slices
from chroma_eddy.storage.settings import IndexSettings, json_settings
from chroma_eddy.storage.store import Store
from chroma_eddy.storage.swap import finish_swap, wait_for_swap
from chroma_eddy.types import Document
from chroma_eddy.words.bm25 import Key
from chroma_eddy.words.word_index import WordIndex
from eddy_embed.integrations.documents import DOCUMENT, FINGERPRINT
from eddy_embed.parts.postprocess import Fitted
from eddy_embed.utils.arrays import Doubles, unit
from eddy_embed.utils.settings import contrast

if TYPE_CHECKING:
    from eddy_embed import Embedder, Reranker  # import torch

_SAMPLE = 1000
"""Most passages whose cosines say what a question's cosines are like."""
_PENDING = "eddy_pending"
"""Metadata of the main collection: the versions whose rows are being written or removed, by their document's id."""
PIECES = ""
"""In place of a document's id: pieces are being written or removed."""
KEYS = {"document": DOCUMENT, "digest": DIGEST}
"""Metadata of rows by which they are deleted with their words."""
T = TypeVar("T")


class IndexCore:
    """An opened index, without the operations that `Index` offers on it."""

    settings: IndexSettings

    def __init__(
        self, store: Store, embedder: Embedder | EddyEmbeddingFunction | None, sizes: Mapping[str, Any]
    ) -> None:
        """Open the index, with the chosen of its `sizes`; finish a swap of collections that was interrupted."""
        self.store, self.name, self._sizes = store, store.name, dict(sizes)
        self._embedder: Embedder | None = None
        self.reranker: Reranker | None = None
        self.words = WordIndex(store, lambda: str(self.settings.embedder["segmenter"]).rsplit(":", 2)[1])
        self._sample: tuple[str, Doubles] | None = None
        self._pieces: tuple[Any, bool] = (None, False)
        self._identity: Any = None
        self._set_given(embedder)
        wait_for_swap(store)
        self.reload()

    def _set_given(self, embedder: Embedder | EddyEmbeddingFunction | None) -> None:
        self._function = embedder if isinstance(embedder, EddyEmbeddingFunction) else None
        self._given = embedder.embedder if isinstance(embedder, EddyEmbeddingFunction) else embedder

    @property
    def exists(self) -> bool:
        """Whether the main collection exists."""
        return self.store.find() is not None

    @property
    def was_absent(self) -> bool:
        """Whether the main collection did not exist at the last reload."""
        return self._identity is None

    @property
    def embedder(self) -> Embedder:
        """The embedder, with the fitted post-processing that the index was made with.

        Raises:
            NoIndex: The index was opened without an embedder.
        """
        if self._embedder is None:
            raise NoIndex(f"index {self.name!r} was opened without an embedder; give one to open_index to embed texts")
        return self._embedder

    @property
    def encoding(self) -> dict[str, Any]:
        """Arguments of `encode_long` that give what the index stores of a document."""
        parts = ["document", "passages", *["sentences"] * self.stores_sentences]
        return {"passage_size": self.settings.passage_size, "late": self.settings.late, "parts": parts}

    @property
    def runs_layers(self) -> bool:
        """Whether the embedder runs layers of its model."""
        return self._embedder is not None and self._embedder.method.exit_layer > 0

    @property
    def stores_sentences(self) -> bool:
        """Whether sentences' vectors are stored: where the method runs layers, so that a sentence takes a pass."""
        return self.settings.sentence_vectors and self.runs_layers and self.store.connection.folder is not None

    @property
    def dimension(self) -> int:
        """Width of the stored vectors; 0 where neither an embedder nor an index says it."""
        if self._embedder is not None:
            return self._embedder.dimension
        return int(self.store.metadata().get("eddy_dimension", 0))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={value}" for name, value in self.settings.sizes.items())
        place = None if self.store.place is None else str(self.store.place)
        return f"{type(self).__name__}({self.name!r}, {place=!r}, embedder={self._embedder!r}, {sizes})"

    def version(self) -> tuple[str, str]:
        """Fingerprint of the stored vectors, and a mark that each write of any process renews; "" if there are none."""
        metadata = self.store.metadata()
        return str(metadata.get(FINGERPRINT, "")), str(metadata.get("eddy_written", ""))

    @property
    def holds_pieces(self) -> bool:
        """Whether frameworks have written pieces; the database is asked again only when rows have changed."""
        written = self.store.known_metadata.get("eddy_written")
        if self._pieces[0] != written:
            # Only pieces have an empty digest. PIECE itself would be slower: Chroma has no index of truth values.
            with translated_errors(self.store.place):
                found = self.exists and self.store.collection().get(where={DIGEST: ""}, limit=1, include=[])["ids"]
            self._pieces = written, bool(found)
        return self._pieces[1]

    @property
    def collection(self) -> Collection:
        """The main collection; Chroma embeds questions to it with the index's embedder."""
        with translated_errors(self.store.place):
            return self.store.client.get_collection(self.name, embedding_function=self._as_function())  # type: ignore[arg-type]

    # --- Reading

    def read(self, action: Callable[[], T]) -> T:
        """Read the index; if it has changed meanwhile, reload it and read once more, while nobody may write.

        Raises:
            FingerprintMismatch: Another process has replaced it by one of another embedder.
            ForeignCollection: Something else has changed its rows.
        """
        try:
            if self.store.refresh() != self._identity:
                raise NotFoundError(f"index {self.name!r} was made anew by another process")
            before = self._state(self.store.known_metadata)
            found = action()
            # Rows that were deleted under a search are missing from what it finds, and nothing else tells.
            if self._state(self.store.metadata()) == before:
                return found
        except (NotFoundError, ForeignCollection, StorageError) as error:
            # A search while another process writes fails inside the database, with an InternalError.
            if isinstance(error, StorageError) and not isinstance(error.__cause__, InternalError):
                raise
        while True:
            self.reload()
            with translated_errors(self.store.place), self.store.connection.row_lock or nullcontext():
                self.store.connection.reopen()
                main = self.store.find()
                # Who replaces an index does not hold this lock, and may have done so since the reload.
                if (None if main is None else main.id) == self._identity:
                    return action()

    def entries(self, ids: Sequence[str] | None = None) -> dict[str, DocumentRow]:
        """The documents' rows by id; None: of all documents."""
        return _entries(self.store, ids)

    def rebuilt(self) -> dict[str, DocumentRow]:
        """Rows of the documents that an unfinished reindexing has done, by id; none without one."""
        return _entries(self.store.with_suffix(NEXT, texts_only=True))

    def incomplete(self) -> list[str]:
        """Ids of the documents that are being written or removed, or were when a writer was killed, or are damaged."""
        damaged = {id_ for id_, row in self.entries().items() if not row.digest}
        return sorted({*self._pending(), *damaged} - {PIECES})

    def hidden_versions(self) -> set[str]:
        """Versions whose rows queries leave out: they are being written or removed."""
        return self._hidden(self._pending())

    def _hidden(self, pending: Mapping[str, Sequence[str]]) -> set[str]:
        # A damaged document has no version, as a piece has none.
        found = {digest for digests in pending.values() for digest in digests if digest}
        named = {row.digest for row in self.entries(sorted(pending)).values()} if found else set()
        return found - named

    def _pending(self, metadata: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
        known = self.store.known_metadata if metadata is None else metadata
        pending: dict[str, list[str]] = json.loads(known.get(_PENDING) or "{}")
        return pending

    def _state(self, metadata: Mapping[str, Any]) -> tuple[Any, ...]:
        """What is the same before and after a read if nothing was changed that it may have missed."""
        pending = self._pending(metadata)
        return metadata.get("eddy_written"), pending, self._hidden(pending)

    def documents(self, ids: Sequence[str] | None = None) -> Iterator[Document]:
        """Documents that queries find, as they were given, by ids; None: all."""
        for group in group_ids(row for row in self.entries(ids).values() if row.digest):
            yield from self.read(partial(read_documents, self.store, group))

    def sample_vectors(self) -> Doubles:
        """Vectors of length 1 of a sample of passages, shape (sample, dimension); read again when passages changed."""
        written = str(self.store.known_metadata.get("eddy_written"))
        if self._sample is None or self._sample[0] != written:
            rows = Rows.concatenate(self.store.sample(MAIN, _SAMPLE, metadatas=True))
            vectors = self.store.vectors_of(MAIN, rows) if rows.ids else np.zeros((0, self.embedder.dimension))
            self._sample = written, unit(vectors.astype(np.float64))
        return self._sample[1]

    def reload(self) -> None:
        """Read the stored settings and compare them with the embedder; if they differ, nothing changes.

        Raises:
            FingerprintMismatch: They differ.
            NoIndex: The index does not exist, and there is no embedder.
            NotFoundError: The index was closed.
            OutdatedIndex: An earlier version of this library wrote the index.
        """
        self.store.connection.check_open()
        self.store.forget()
        # The identity first: of an index that is replaced in between, it is one that `read` no longer finds.
        identity, stored, given = self.store.identity, self.store.settings(), self._given
        if stored is None:  # a swap may be between the two names of the main collection
            wait_for_swap(self.store)
            identity, stored = self.store.identity, self.store.settings()
        vectors = self.store.vectors
        if given is not None and not given.is_fitted and vectors is not None and vectors.fit.exists():
            kept = Fitted.load(vectors.fit)
            given = given.with_post(kept) if kept.post == given.method.post else given
        if stored is None:
            if given is None:
                raise NoIndex(f"there is no index {self.name!r}; give an embedder to make one")
            self.settings = IndexSettings(json_settings(given), **{"late": given.reads_late, **self._sizes})
        else:
            settings = dict(stored.embedder) if given is None else json_settings(given)
            made = {} if given is None else {"model_name": given.model_name, "method": str(given.method)}
            asked = IndexSettings(settings, **{**stored.sizes, **self._sizes})
            stored.check(self.name, asked, contrast(self.store.made_by, made))
            self.settings = stored
        self._embedder = given
        self._identity = identity

    # --- Writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock, and clean up after a writer that was killed.

        Raises:
            IndexInUse: Another process is writing.
            StorageError: The folder is not writable.
        """
        with self.store.lock:
            self.store.refresh()
            if self._pending():  # a writer was killed, and could not say what it had written
                self.store.connection.reopen()
            self.store.remake()
            finish_swap(self.store, clean=True)
            self.reload()
            self._recover()
            try:
                yield
            finally:
                self.words.close()

    def _recover(self) -> None:
        """Delete what a killed writer has left; nobody knows which pieces' words it wrote."""
        pending = self._pending()
        if self.words.missing or PIECES in pending:
            self.words.rebuild()
        if pending:
            self.delete_rows("digest", sorted(self.hidden_versions()))
            self.store.mark_written(**{_PENDING: ""})

    @contextmanager
    def changing(self, versions: Mapping[str, Sequence[str]]) -> Iterator[None]:
        """Change rows of versions, by their documents' ids; at the end, tell readers.

        Queries find a version if its document's row names it; another is left out, and deleted by the next writer.
        """
        pending = json.dumps({id_: list(digests) for id_, digests in versions.items()})
        with translated_errors(self.store.place), self.store.connection.row_lock or nullcontext():
            self.store.refresh()  # a reader may have made the files of vectors anew since the last change
            self.store.update_metadata(**{_PENDING: pending})
            with self.store.changing():
                yield
            self.store.mark_written(**{_PENDING: ""})

    def put_rows(self, rows: Rows) -> Rows:
        """Write rows of the main collection, and then their words; return them as they are stored."""
        stored = replace(rows, metadatas=self.store.upsert(MAIN, rows))
        self.words.put(stored)
        return stored

    def delete_rows(self, key: Key, values: Sequence[str]) -> int:
        """Delete rows of the main collection with their words; return their number."""
        count = 0
        for batch in slices(len(values), PAGE_SIZE):
            chosen = list(values[batch])
            which: dict[str, Any] = {"ids": chosen} if key == "id" else {"where": {KEYS[key]: {"$in": chosen}}}
            count += self.store.delete(MAIN, **which)
        self.words.delete(key, values)
        return count

    def create(self) -> None:
        """Create the collections if they do not exist, and keep the embedder's fitted post-processing beside them."""
        if self.exists:
            return
        post = self.embedder.post if self.embedder.is_fitted else None
        self.store.create(self.settings, self.embedder.dimension, self._as_function())
        if post is not None and self.store.vectors is not None:
            post.save(self.store.vectors.fit)
        self._identity = self.store.identity
        self.words.rebuild()

    def switch_embedder(self, embedder: Embedder | EddyEmbeddingFunction, sizes: Mapping[str, Any]) -> None:
        """Reload after an index of another embedder took this one's place."""
        self._set_given(embedder)
        self._sizes = dict(sizes)
        self.reload()

    def _as_function(self) -> EddyEmbeddingFunction | None:
        if self._embedder is None:
            return None
        if self._function is not None and self._function.fingerprint == self._embedder.fingerprint:
            return self._function
        return EddyEmbeddingFunction.from_embedder(self._embedder)


def _entries(store: Store, ids: Sequence[str] | None = None) -> dict[str, DocumentRow]:
    if store.find() is None:
        return {}
    rows = store.get(DOCUMENTS, metadatas=True, ids=ids)
    return {id_: DocumentRow.parse(id_, row) for id_, row in zip(rows.ids, rows.metadatas, strict=True)}
