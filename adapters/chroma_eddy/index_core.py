"""`IndexCore`: an index's collections, settings and embedder, which queries and writers share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from chromadb.api.models.Collection import Collection
from chromadb.errors import InternalError, NotFoundError

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.errors import ForeignCollection, NoIndex, StorageError
from chroma_eddy.rows.documents import group_ids, read_documents, read_embedded_documents
from chroma_eddy.rows.schema import DIGEST, PENDING, DocumentRow
from chroma_eddy.rows.transform import is_invertible, load_transform, round_to_float32, save_transform
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, MAIN
from chroma_eddy.storage.pages import PAGE_SIZE, Rows, slices
from chroma_eddy.storage.settings import IndexSettings, json_settings
from chroma_eddy.storage.store import Store
from chroma_eddy.storage.swap import finish_swap, wait_for_swap
from chroma_eddy.types import Document
from chroma_eddy.words.bm25 import Key
from chroma_eddy.words.word_index import WordIndex
from eddy_embed.errors import FingerprintMismatch
from eddy_embed.integrations import DOCUMENT, FINGERPRINT, Doubles, Fitted, contrast, is_unfitted

if TYPE_CHECKING:
    from eddy_embed import Embedder, LongDocument  # import torch

_ATTEMPTS, _PAUSE = 8, 0.02
"""Most attempts to read what another process is writing; seconds by which the pause between two attempts grows."""
_PATIENCE = 30.0
"""Seconds during which attempts that a write came between do not count."""
_SAMPLE = 1000
"""Most passages whose cosines say what a question's cosines are like."""
FIELDS = {"document": DOCUMENT, "digest": DIGEST}
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
        """The embedder, with the index's own post-processing; embed questions with this one.

        Raises:
            NoIndex: The index was opened without an embedder.
        """
        if self._embedder is None:
            raise NoIndex(f"index {self.name!r} was opened without an embedder; give one to open_index to embed texts")
        return self._embedder

    @property
    def encoding(self) -> dict[str, Any]:
        """Arguments of `encode_long` that give what the index stores of a document."""
        sizes = self.settings
        parts = ["document", "passages", *["sentences"] * sizes.sentence_vectors]
        return {"passage_size": sizes.passage_size, "late": sizes.late, "parts": parts}

    @property
    def _dimension(self) -> int:
        if self._embedder is not None:
            return self._embedder.dimension
        return next((rows.vectors.shape[1] for rows in self.store.sample(MAIN, 1, embeddings=True)), 0)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={value}" for name, value in self.settings.sizes.items())
        place = None if self.store.place is None else str(self.store.place)
        return f"{type(self).__name__}({self.name!r}, {place=!r}, embedder={self._embedder!r}, {sizes})"

    def current(self) -> Embedder:
        """The embedder; reloads the index first if another process has fitted the post-processing again."""
        if self.exists and self.version()[0] != self.settings.fingerprint:
            self.reload()
        return self.embedder

    def version(self) -> tuple[str, str]:
        """Fingerprint of the stored vectors, and a mark that each write of any process renews; "" if there are none."""
        metadata = self.store.metadata()
        return str(metadata.get(FINGERPRINT, "")), str(metadata.get("eddy_written", ""))

    @property
    def post(self) -> Fitted | None:
        """The index's own post-processing; `save` writes a file for the `fitted=` of other frameworks' embedders."""
        return self._post

    @property
    def keeps_raw(self) -> bool:
        """Whether the index stores raw vectors, because the post-processing cannot be inverted."""
        return self._post is not None and not is_invertible(self._post)

    @property
    def holds_pieces(self) -> bool:
        """Whether frameworks have written pieces; the database is asked again only when rows have changed."""
        metadata = self.store.metadata()
        written = None if metadata.get("eddy_changing") else metadata.get("eddy_written")
        known = self._pieces
        if written is None or known[0] != written:
            # Only pieces have an empty digest. PIECE itself would be slower: Chroma has no index of truth values.
            with translated_errors(self.store.place):
                found = self.exists and self.store.collection().get(where={DIGEST: ""}, limit=1, include=[])["ids"]
            known = self._pieces = (written, bool(found))
        return known[1]

    @property
    def collection(self) -> Collection:
        """The main collection; Chroma embeds questions to it with the index's embedder."""
        with translated_errors(self.store.place):
            return self.store.client.get_collection(self.name, embedding_function=self._as_function())  # type: ignore[arg-type]

    # --- Reading

    def entries(self, ids: Sequence[str] | None = None) -> dict[str, DocumentRow]:
        """The documents' rows by id; None: of all documents."""
        return self._document_rows(ids=ids)

    def incomplete(self) -> dict[str, DocumentRow]:
        """Rows of the documents whose writing or removal was interrupted, by id."""
        return self._document_rows(where={PENDING: {"$ne": ""}})

    def visible_rows(self) -> dict[str, Any] | None:
        """Chroma's condition that excludes versions that queries do not find yet or any more; None without such."""
        hidden = [row.pending for row in self.incomplete().values()]
        return {DIGEST: {"$nin": hidden}} if hidden else None

    def _document_rows(self, **which: Any) -> dict[str, DocumentRow]:
        if not self.exists:
            return {}
        rows = self.store.get(DOCUMENTS, metadatas=True, **which)
        return {id_: DocumentRow.parse(id_, row) for id_, row in zip(rows.ids, rows.metadatas, strict=True)}

    def documents(self, ids: Sequence[str] | None = None) -> Iterator[Document]:
        """Documents that queries find, as they were given, by ids; None: all."""
        for group in group_ids(row for row in self.entries(ids).values() if row.digest):
            yield from self.read_with_reload(partial(self._read_documents, group))

    def _read_documents(self, ids: Sequence[str], attempt: int) -> list[Document]:
        return read_documents(self.store, ids)

    def embedded(self, document: str) -> LongDocument | None:
        """Read a document by its id, with its vectors; None if queries do not find it."""
        if not self.exists:
            return None
        found = self.read_with_reload(
            lambda _: read_embedded_documents(self.store, self.settings, [document], keeps_raw=False)
        )
        return found[0].result if found else None

    def sample_vectors(self) -> Doubles:
        """Vectors of a sample of passages, shape (sample, dimension); read again when passages have changed."""
        written = self.version()[1]
        if self._sample is None or self._sample[0] != written:
            vectors = [rows.vectors for rows in self.store.sample(MAIN, _SAMPLE, embeddings=True)]
            self._sample = written, np.concatenate([np.zeros((0, self.embedder.dimension)), *vectors])
        return self._sample[1]

    def reload(self) -> None:
        """Read the stored settings and compare them with the embedder; if they differ, nothing changes.

        Raises:
            FingerprintMismatch: They differ.
            NoIndex: The index does not exist, and there is no embedder.
            NotFoundError: The index was closed.
        """
        self.store.connection.check_open()
        self.store.forget()
        stored, given = self.store.settings(), self._given
        if stored is None:  # a swap may be between the two names of the main collection
            wait_for_swap(self.store)
            stored = self.store.settings()
        identity = self.store.identity
        if stored is None:
            if given is None:
                raise NoIndex(f"there is no index {self.name!r}; give an embedder to make one")
            self._embedder = given if given.post is None else given.with_post(round_to_float32(given.post))
            self._post: Fitted | None = self._embedder.post
            self.settings = IndexSettings(
                json_settings(self._embedder), **{"late": given.can_embed_spans, **self._sizes}
            )
            self._identity = identity
            return
        settings = dict(stored.embedder) if given is None else stored.comparable_settings(given)
        made = {} if given is None else {"model_name": given.model_name, "method": str(given.method)}
        stored.check(
            self.name, IndexSettings(settings, **{**stored.sizes, **self._sizes}), contrast(self.store.made_by, made)
        )
        post = None if stored.embedder["post"] is None else load_transform(self.store)
        if (None if post is None else post.digest) != stored.embedder["post"]:
            raise FingerprintMismatch(
                f"the post-processing in {self.name}-transform is not the one that index {self.name!r} was made with: "
                "something else has changed it; embed the documents again into another index"
            )
        self.settings, self._post = stored, post
        if given is not None:
            self._embedder = given if post is None else given.with_post(post)
        # Set this last: until then, `read_consistently` sends other threads back to reload.
        self._identity = identity

    def read_consistently(self, read: Callable[[int], T]) -> T:
        """Repeat a read, called with the number of the attempt, until no other process's write disturbs it.

        It raises ForeignCollection if rows and documents' rows differ. Attempts that a write came between do not count,
        for so long as a reader is patient.

        Raises:
            NotFoundError: Another process has replaced the index; reload it.
            ForeignCollection: The rows still differ after the last attempt: something else has changed them.
        """
        until, attempt, written = time.monotonic() + _PATIENCE, 0, None
        while True:
            if self.store.refresh(force=attempt > 1) != self._identity:
                self.store.forget()
                raise NotFoundError(f"index {self.name!r} was made anew by another process")
            try:
                return read(attempt)
            except (ForeignCollection, StorageError) as error:
                # A search while another process writes fails inside the database, with an InternalError.
                permanent = isinstance(error, StorageError) and not isinstance(error.__cause__, InternalError)
                if permanent or attempt == _ATTEMPTS - 1:
                    raise
                wait_for_swap(self.store)
                time.sleep(attempt * _PAUSE)
            before, written = written, self.store.metadata().get("eddy_written")
            attempt = 2 if before != written and attempt > 1 and time.monotonic() < until else attempt + 1

    def read_with_reload(self, read: Callable[[int], T]) -> T:
        """As `read_consistently`; reloads the index if another process has replaced it."""
        try:
            return self.read_consistently(read)
        except NotFoundError:
            self.reload()
            return self.read_consistently(read)

    # --- Writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock; at the end, tell readers of the changes.

        Raises:
            IndexInUse: Another process is writing.
            StorageError: The folder is not writable.
        """
        with self.store.lock:
            killed = self.store.begin_writing()
            finish_swap(self.store, clean=True)
            self.reload()
            # A document that was interrupted is written again, with its words; nobody knows which pieces were.
            if self.words.missing or (killed and self.holds_pieces):
                self.words.rebuild()
            try:
                yield
            finally:
                self.words.close()
            self.store.end_change()

    def put_rows(self, rows: Rows) -> None:
        """Write rows of the main collection, and then their words; documents' rows let queries find passages later."""
        self.store.upsert(MAIN, rows.ids, rows.vectors, rows.metadatas, rows.texts)
        self.words.put(rows)

    def delete_rows(self, key: Key, values: Sequence[str]) -> int:
        """Delete rows of the main collection with their words; return their number."""
        count = 0
        for batch in slices(len(values), PAGE_SIZE):
            chosen = list(values[batch])
            which: dict[str, Any] = {"ids": chosen} if key == "id" else {"where": {FIELDS[key]: {"$in": chosen}}}
            count += self.store.delete(MAIN, **which)
        self.words.delete(key, values)
        return count

    def create(self, **more: Any) -> None:
        """Create the collections, with `more` metadata, if none exist; first the transform, whose digest is stored."""
        if self.exists:
            return
        if self._post is not None:
            save_transform(self.store, self._post)
        elif self._given is not None and is_unfitted(self._given):
            self._given = self._embedder
        self.store.create(self.settings, self._as_function(), **more)
        self._identity = self.store.identity
        self.words.rebuild()

    def switch_embedder(self, embedder: Embedder | EddyEmbeddingFunction | None, sizes: Mapping[str, Any]) -> None:
        """Reload after another index took this one's place, with its embedder; None: the present one, fitted again."""
        if embedder is not None:
            self._set_given(embedder)
        elif self._given is not None and self._given.post is not None:
            self._given = self._given.with_post(load_transform(self.store))
        self._sizes = dict(sizes)
        self.reload()

    def set_post(self, fitted: Fitted | None) -> None:
        """Set the post-processing of an index that has no rows yet; None: do without."""
        self._post = fitted
        self._embedder = self.embedder.with_post(fitted)
        self.settings = replace(self.settings, embedder=json_settings(self._embedder))

    def _as_function(self) -> EddyEmbeddingFunction | None:
        if self._embedder is None:
            return None
        if self._function is not None and self._function.fingerprint == self._embedder.fingerprint:
            return self._function
        return EddyEmbeddingFunction.from_embedder(self._embedder)
