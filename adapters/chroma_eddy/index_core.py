"""What an opened index is: its collections, and what makes its vectors, held against each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from chromadb.errors import InternalError, NotFoundError

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.errors import ForeignCollection, NoIndex, StorageError
from chroma_eddy.rows.bm25 import Bm25Index
from chroma_eddy.rows.documents import group_ids, read_documents
from chroma_eddy.rows.schema import DIGEST, OTHER, DocumentRow
from chroma_eddy.rows.transform import is_invertible, load_transform, round_to_float32, save_transform
from chroma_eddy.storage import swap
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, MAIN
from chroma_eddy.storage.recipe import Recipe, is_unfitted, json_settings
from chroma_eddy.storage.store import Store
from eddy_embed.errors import FingerprintMismatch

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection
    from typing_extensions import Self

    from chroma_eddy.types import Document
    from eddy_embed import Embedder
    from eddy_embed.postprocess import Fitted

PASSAGE_SIZE = 256
_ATTEMPTS, _PAUSE = 8, 0.02
"""How often something is read that another process is writing, and seconds between that grow with each time."""
T = TypeVar("T")


class IndexCore:
    """The base of `Index`."""

    def __init__(
        self, store: Store, embedder: Embedder | EddyEmbeddingFunction | None, sizes: Mapping[str, Any]
    ) -> None:
        """Open; use `open_index`."""
        self.store, self.name = store, store.name
        self._sizes = dict(sizes)
        self._function = embedder if isinstance(embedder, EddyEmbeddingFunction) else None
        self._given = embedder.embedder if isinstance(embedder, EddyEmbeddingFunction) else embedder
        self._embedder: Embedder | None = None
        self._words: tuple[str, Bm25Index] | None = None
        self._pieces: tuple[Any, bool] = (None, False)
        self._identity: Any = None
        self.recipe: Recipe
        swap.wait_for_swap(store)
        self.reload()

    @property
    def exists(self) -> bool:
        """Whether anything was written yet."""
        return self.store.find() is not None

    @property
    def was_absent(self) -> bool:
        """Whether nothing was there when it was last read."""
        return self._identity is None

    @property
    def embedder(self) -> Embedder:
        """What makes its vectors, with the index's own post-processing: ask with this one.

        Raises:
            NoIndex: It was opened without one.
        """
        if self._embedder is None:
            raise NoIndex(f"index {self.name!r} was opened without an embedder; give one to open_index to embed texts")
        return self._embedder

    def current(self) -> Embedder:
        """The embedder as it is now: another process may have fitted the post-processing again."""
        if self.exists and self.store.metadata().get("eddy_fingerprint") != self.recipe.fingerprint:
            self.reload()
        return self.embedder

    @property
    def post(self) -> Fitted | None:
        """The index's own post-processing; its `save` writes a file for the `post=` of other frameworks' embedders."""
        return self._post

    @property
    def keeps_raw(self) -> bool:
        """Whether raw vectors are kept beside the processed ones, since these do not give them back."""
        return self._post is not None and not is_invertible(self._post)

    @property
    def holds_pieces(self) -> bool:
        """Whether frameworks have put pieces in, which are looked for again when rows have changed."""
        about = self.store.metadata()
        written = None if about.get("eddy_changing") else about.get("eddy_written")
        known = self._pieces
        if written is None or known[0] != written:
            known = self._pieces = (written, contains_pieces(self))
        return known[1]

    @property
    def collection(self) -> Collection:
        """The main collection, which embeds questions given as texts with the index's embedder."""
        with translated_errors(self.store.place):
            return self.store.client.get_collection(self.name, embedding_function=self._as_function())  # type: ignore[arg-type]

    def entries(self, ids: Sequence[str] | None = None) -> dict[str, DocumentRow]:
        """What is known of the documents, by id; of all of them without ids."""
        if not self.exists:
            return {}
        rows = self.store.get(DOCUMENTS, ids=ids, metadatas=True)
        return {id_: DocumentRow.parse(id_, row) for id_, row in zip(rows.ids, rows.metadatas, strict=True)}

    def incomplete(self) -> dict[str, DocumentRow]:
        """Documents whose writing or removal was interrupted."""
        if not self.exists:
            return {}
        rows = self.store.get(DOCUMENTS, where={OTHER: {"$ne": ""}}, metadatas=True)
        return {id_: DocumentRow.parse(id_, row) for id_, row in zip(rows.ids, rows.metadatas, strict=True)}

    def documents(self) -> Iterator[Document]:
        """Every document that queries find, as it was given."""
        for ids in group_ids(entry for entry in self.entries().values() if entry.digest):
            yield from self.read_with_reload(partial(self._stored, ids))

    def _stored(self, ids: Sequence[str], attempt: int) -> list[Document]:
        return read_documents(self.store, ids)

    def bm25(self) -> Bm25Index:
        """BM25 over the passages, counted anew when they have changed."""
        written = str(self.store.metadata().get("eddy_written"))
        if self._words is None or self._words[0] != written:
            self._words = (written, build_bm25(self))
        return self._words[1]

    def reload(self) -> None:
        """Read anew what made the index, and compare it with the embedder; if they differ, all stays as it was.

        Raises:
            FingerprintMismatch: They differ.
        """
        self.store.forget()
        found, given = self.store.recipe(), self._given
        if found is None:  # perhaps it was stopped, or is just now, between the two names of its main collection
            swap.wait_for_swap(self.store)
            found = self.store.recipe()
        identity = self.store.identity
        if found is None:
            if given is None:
                raise NoIndex(f"there is no index {self.name!r}; give an embedder to make one")
            usual = {"passage_size": PASSAGE_SIZE, "late": given.reads_spans, "sentence_vectors": True}
            self._embedder = given if given.post is None else given.with_post(round_to_float32(given.post))
            self._post: Fitted | None = self._embedder.post
            self.recipe = Recipe(json_settings(self._embedder.settings), **{**usual, **self._sizes})
            self._identity = identity
            return
        settings = dict(found.settings) if given is None else found.settings_of(given)
        found.check(self.name, Recipe(settings, **{**_sizes(found), **self._sizes}))
        post = None if found.settings["post"] is None else load_transform(self.store)
        if (None if post is None else post.digest) != found.settings["post"]:
            raise FingerprintMismatch(
                f"the post-processing in {self.name}-transform is not the one that index {self.name!r} was made with: "
                "something else has changed it; embed the documents again into another index"
            )
        self.recipe, self._post = found, post
        if given is not None:
            self._embedder = given if post is None else given.with_post(post)
        self._identity = identity  # last: a thread that asks meanwhile is sent back until all the rest is known

    def read_consistently(self, read: Callable[[int], T]) -> T:
        """Read what other processes may be writing.

        Args:
            read: Called with the number of the attempt, until it finds everything as the documents' rows say it is.

        Raises:
            NotFoundError: Another process has made the index anew, and it must be reloaded.
            ForeignCollection: Something else has changed its rows.
        """
        for attempt in range(_ATTEMPTS):
            if self.store.refresh(anew=attempt > 1) != self._identity:
                self.store.forget()
                raise NotFoundError(f"index {self.name!r} was made anew by another process")
            try:
                return read(attempt)
            except (ForeignCollection, StorageError) as error:
                # A search in the midst of another process's writing fails inside the database.
                settled = isinstance(error, StorageError) and not isinstance(error.__cause__, InternalError)
                if settled or attempt == _ATTEMPTS - 1:
                    raise
                swap.wait_for_swap(self.store)
                time.sleep(attempt * _PAUSE)
        raise AssertionError

    def read_with_reload(self, read: Callable[[int], T]) -> T:
        """As `steadily`, also where another process has made the index anew."""
        try:
            return self.read_consistently(read)
        except NotFoundError:
            self.reload()
            return self.read_consistently(read)

    @property
    def sizes(self) -> dict[str, Any]:
        """What `open_index` can be told beside the embedder."""
        return _sizes(self.recipe)

    def open_sibling(self, store: Store, embedder: Embedder | EddyEmbeddingFunction, sizes: Mapping[str, Any]) -> Self:
        """Another index in the same database, to be written to."""
        other = type(self)(store, embedder, sizes)
        store.begin_writing()
        return other

    def switch_embedder(self, embedder: Embedder | EddyEmbeddingFunction | None, sizes: Mapping[str, Any]) -> None:
        """Go on with what has taken this index's place; without an embedder, with the same, fitted anew."""
        if embedder is not None:
            self._function = embedder if isinstance(embedder, EddyEmbeddingFunction) else None
            self._given = embedder.embedder if isinstance(embedder, EddyEmbeddingFunction) else embedder
        elif self._given is not None and self._given.post is not None:
            self._given = self._given.with_post(load_transform(self.store))
        self._sizes = dict(sizes)
        self.reload()

    def set_post(self, fitted: Fitted | None) -> None:
        """Take post-processing over that was fitted just now, or do without, before anything is written."""
        self._post = fitted
        self._embedder = self.embedder.with_post(fitted)
        self.recipe = Recipe(json_settings(self._embedder.settings), **self.sizes)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the index against other writers.

        Raises:
            IndexInUse: Another process is writing.
            StorageError: The folder cannot be written to.
        """
        with self.store.hold_lock():
            self.store.begin_writing()
            swap.finish_swap(self.store, clean=True)
            self.reload()
            yield
            self.store.end_change()

    def create(self, **more: Any) -> None:
        """Make the collections, if they are not there; post-processing before the main one, which names it.

        Args:
            **more: Further metadata of the main collection.
        """
        if self.exists:
            return
        if self._post is not None:
            save_transform(self.store, self._post)
        elif self._given is not None and is_unfitted(self._given):
            self._given = self._embedder
        self.store.create(self.recipe, self._as_function(), **more)
        self._identity = self.store.identity

    def _as_function(self) -> EddyEmbeddingFunction | None:
        if self._embedder is None:
            return None
        if self._function is not None and self._function.fingerprint == self._embedder.fingerprint:
            return self._function
        return EddyEmbeddingFunction.from_embedder(self._embedder)


def _sizes(recipe: Recipe) -> dict[str, Any]:
    return {name: getattr(recipe, name) for name in ("passage_size", "late", "sentence_vectors")}


def contains_pieces(index: IndexCore) -> bool:
    """Whether there are any."""
    if not index.exists:
        return False
    # Only pieces have no version; for truth values the database has no index.
    with translated_errors(index.store.place):
        got = index.store.collection(MAIN).get(where={DIGEST: ""}, limit=1, include=[])
    return bool(got["ids"])


def build_bm25(index: IndexCore) -> Bm25Index:
    """BM25 over the passages that queries may find."""
    rows = index.store.get(MAIN, documents=True)
    language = str(index.recipe.settings["segmenter"]).rsplit(":", 2)[1]
    return Bm25Index(rows.ids, rows.texts, language)
