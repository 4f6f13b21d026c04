"""An index of documents in Chroma that knows what made its vectors, and loses none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query import search
from chroma_eddy.query.search import Granularity, Query
from chroma_eddy.storage import swap
from chroma_eddy.storage.client import connect
from chroma_eddy.storage.names import DOCUMENTS, MAIN, SENTENCES, check_index_name
from chroma_eddy.storage.store import Store
from chroma_eddy.types import Document, Hit
from chroma_eddy.write import integrity, rebuild
from chroma_eddy.write.writer import Progress, Writer, WriteReport
from eddy_embed import Embedder
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.inputs import check_kind, check_one, check_options

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from chroma_eddy.storage.client import Place


@dataclass(frozen=True)
class Status:
    """What an index says of itself.

    Attributes:
        name: Its name.
        fingerprint: Of the embedder that made its vectors.
        settings: The embedder's settings, field by field.
        dimension: Of the vectors; 0 while there are none.
        documents: Documents that queries find.
        passages: Rows in the main collection.
        sentences: Rows in the sentences' collection.
        incomplete: Ids of documents whose writing or removal was interrupted; the next upsert of them finishes it.
        fitted_on: Passages that post-processing was fitted on, 0 where there is none.
        rebuilt: Documents that an unfinished reindexing has done; None where none is under way.
    """

    name: str
    fingerprint: str
    settings: Mapping[str, Any] = field(repr=False)
    dimension: int
    documents: int
    passages: int
    sentences: int
    incomplete: tuple[str, ...]
    fitted_on: int
    rebuilt: int | None


class Index(IndexCore):
    """Documents' vectors in a Chroma database: passages to be searched, sentences to be marked, whole documents.

    Made by `open_index`. One process at a time may write; any number may read, and a document that is being written is
    found in its old version until the new one is whole.

    Attributes:
        name: Of the main collection.
        recipe: What makes its vectors.
        store: Its collections.
    """

    # --- What it is

    def status(self) -> Status:
        """What is in it."""
        return self.read_with_reload(lambda _: self._status())

    def _status(self) -> Status:
        entries = self.entries() if self.exists else {}
        first = self.store.get(DOCUMENTS, ids=list(entries)[:1], embeddings=True).vectors if entries else None
        return Status(
            name=self.name,
            fingerprint=self.recipe.fingerprint,
            settings=self.recipe.settings,
            dimension=0 if first is None else first.shape[1],
            documents=sum(bool(entry.digest) for entry in entries.values()),
            passages=self.store.count(MAIN),
            sentences=self.store.count(SENTENCES),
            incomplete=tuple(id_ for id_, entry in entries.items() if not entry.complete),
            fitted_on=0 if self._post is None else self._post.count,
            rebuilt=swap.rebuilt_documents(self.store),
        )

    def check(self) -> dict[str, str]:
        """Look at every row: ids of documents that lack some, or have another text, or other metadata, than they had.

        Such documents were changed by something else. Queries leave them out, and the next `upsert` or `sync` that
        holds them writes them again. Rows of versions that no document has are deleted.

        Returns:
            What is wrong with them, by id.
        """
        with self.writing():
            return integrity.check_rows(self)

    # --- Questions

    def query(
        self,
        question: str,
        k: int = 5,
        *,
        where: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        documents: Sequence[str] | None = None,
        granularity: Granularity = "passages",
        prefilter: int | None = None,
        hybrid: bool = False,
        mmr: bool = False,
        fetch_k: int | None = None,
        lambda_mult: float = 0.5,
        sentences: bool = False,
    ) -> list[Hit]:
        """What is nearest to a question, nearest first, with true cosines.

        Args:
            question: In words.
            k: How many hits are wanted.
            where: A condition on metadata, `page` and `last_page`, as Chroma has them.
            where_document: A condition on passages' texts, such as `{"$contains": "ferry"}`.
            documents: Ids of the only documents to look in.
            granularity: What is searched: "passages", "sentences" or "documents".
            prefilter: Look only in so many documents, those that are nearest as a whole.
            hybrid: Order passages by the sum of reciprocal ranks, by meaning and by BM25.
            mmr: Choose hits that differ from each other, by maximal marginal relevance.
            fetch_k: How many of the nearest `mmr` and `hybrid` look at; None: 20 and 100.
            lambda_mult: For `mmr`: 1 for the nearest alone, 0 for the greatest difference.
            sentences: Mark the sentences of the passages found, each with its cosine.

        Raises:
            InvalidText: The question is blank, or not valid Unicode.
            InvalidParameter: What is wanted does not go together.
        """
        check_one(question)
        given = {name: value for name, value in locals().items() if name not in ("self", "question")}

        while True:
            own = self.embedder
            vector = own.encode_query(question, show_progress=False)[None].astype(np.float64)
            try:
                return search.search(self, vector, [question], Query(**given), own.fingerprint)[0]
            except FingerprintMismatch:  # another process or thread has made the index anew meanwhile
                if self.embedder.fingerprint == own.fingerprint:
                    raise

    def search(
        self,
        vectors: ArrayLike,
        k: int = 5,
        *,
        where: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        documents: Sequence[str] | None = None,
        granularity: Granularity = "passages",
        prefilter: int | None = None,
        mmr: bool = False,
        fetch_k: int | None = None,
        lambda_mult: float = 0.5,
        sentences: bool = False,
    ) -> list[list[Hit]]:
        """As `query`, for questions that are embedded already.

        Args:
            vectors: Shape (questions, dimension).
            k: How many hits are wanted for each.
            where: As in `query`, and so the others.
            where_document: See there.
            documents: See there.
            granularity: See there.
            prefilter: See there.
            mmr: See there.
            fetch_k: See there.
            lambda_mult: See there.
            sentences: See there.

        Raises:
            FingerprintMismatch: The index was made anew meanwhile by another process.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "vectors")}
        vectors = np.atleast_2d(np.asarray(vectors, np.float64))
        return search.search(self, vectors, None, Query(**given), self.recipe.fingerprint)

    # --- Writing

    def upsert(
        self,
        documents: Iterable[Document],
        progress: Progress | None = None,
        *,
        fit_least: int = 0,
        begin: Callable[[Index], None] | None = None,
    ) -> WriteReport:
        """Embed and write what is new or has changed; a second time, nothing happens.

        Stopped at any moment, it is simply called again: documents that are stored whole are not embedded again.

        Args:
            documents: Whole documents, read one group at a time.
            progress: Called with the characters embedded so far, and the documents written.
            fit_least: A new index with fewer different passages than this is made without the method's post-processing,
                which would describe the sample more than the library; `embedder.method` then says so. 0: never.
            begin: Called with the index when a new one is about to be made, its post-processing decided.

        Raises:
            IndexInUse: Another process is writing.
            InvalidParameter: A document cannot be stored, an id came twice, or there are too few passages to fit
                post-processing on.
            InvalidText: A text cannot be embedded.
            StorageError: The database failed; what was finished is kept.
        """
        with self.writing():
            return Writer(self, progress, fit_least, begin).run(documents)

    def sync(self, documents: Iterable[Document], progress: Progress | None = None) -> WriteReport:
        """As `upsert`, and then take out every document that was not among these.

        Raises:
            InvalidParameter: There are none: a folder that is not mounted would empty the index.
        """
        with self.writing():
            writer = Writer(self, progress)
            report = writer.run(documents)
            if not writer.ids:
                raise InvalidParameter(
                    "sync was given no document, and would empty the index; to do so, call remove with the ids"
                )
            report.removed = integrity.remove_documents(self, [id_ for id_ in self.entries() if id_ not in writer.ids])
            return report

    def remove(self, ids: Iterable[str]) -> int:
        """Take documents out.

        Args:
            ids: Of the documents; those that are not there are passed by.

        Returns:
            How many were there.
        """
        given = [ids] if isinstance(ids, str) else list(ids)
        with self.writing():
            return integrity.remove_documents(self, given)

    def reindex(
        self,
        embedder: Embedder | EddyEmbeddingFunction,
        *,
        passage_size: int | None = None,
        late: bool | None = None,
        sentence_vectors: bool | None = None,
        restart: bool = False,
        progress: Progress | None = None,
    ) -> WriteReport:
        """Embed all documents again with another embedder, from their stored texts.

        The new index is made beside this one, which goes on to be found, and takes its place once it is complete.
        Stopped at any moment, it goes on where it was when it is called again with the same arguments.

        Args:
            embedder: The other one.
            passage_size: Most tokens in a passage; None: as it was.
            late: How passages are embedded; None: as it was, as far as the method allows it.
            sentence_vectors: Whether sentences have rows; None: as it was.
            restart: Leave an unfinished reindexing, and begin anew.
            progress: Called with the characters embedded so far, and the documents written.

        Raises:
            FingerprintMismatch: Another reindexing is unfinished.
        """
        check_kind("embedder", embedder, Embedder | EddyEmbeddingFunction, "an Embedder")
        own = embedder.embedder if isinstance(embedder, EddyEmbeddingFunction) else embedder
        chosen = {"passage_size": passage_size, "late": late, "sentence_vectors": sentence_vectors}
        usual = {**self.sizes, "late": self.recipe.late and own.reads_spans}
        sizes = {name: usual[name] if value is None else value for name, value in chosen.items()}
        return rebuild.reindex(self, embedder, sizes, progress, restart)

    def refit(self, queries: Iterable[str] | None = None, progress: Progress | None = None) -> WriteReport:
        """Fit the post-processing again, on all passages, and rewrite the vectors; the model does not run.

        For an index that has grown. As with `reindex`, the old vectors are found until the new ones are complete, and
        a call that was stopped is repeated.

        Args:
            queries: Sample questions, for a mean of their own; only these are embedded.
            progress: Called with the characters done so far, and the documents written.

        Raises:
            InvalidParameter: There is no post-processing, or it was fitted with queries and none are given.
        """
        return rebuild.refit(self, queries, progress)

    def close(self) -> None:
        """Let go of the database's files."""
        self.store.close()

    def __enter__(self) -> Index:
        """Use as a context manager: closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def open_index(
    place: Place,
    name: str,
    embedder: Embedder | EddyEmbeddingFunction | None = None,
    *,
    passage_size: int | None = None,
    late: bool | None = None,
    sentence_vectors: bool | None = None,
    timeout: float = 0.0,
) -> Index:
    """Open an index, or begin one; one whose vectors another embedder made is refused.

    Args:
        place: A folder, a Chroma server's URL such as "http://localhost:8000", or one of Chroma's clients.
        name: The index's name: of the collection of passages, beside which `<name>-sentences` and `<name>-documents`
            are. It needs no more than the names of the index that it belongs to.
        embedder: Embeds documents and questions. None: the index must be there, and takes and answers no texts.
        passage_size: Most tokens in a passage, which holds whole sentences; None: the index's own, 256 in a new one.
        late: Whether passages are read out of the pass over their whole document, or embedded each by itself; None:
            the index's own; in a new one, late where the method allows it.
        sentence_vectors: Whether each sentence has a row of its own, so that the best one of a passage is found
            without the model; None: the index's own, True in a new one.
        timeout: Seconds to wait while another process writes.

    Raises:
        FingerprintMismatch: The index was made by another embedder, or in other sizes; the message shows both, field
            by field, and what to do.
        ForeignCollection: Something else made a collection of that name.
        NoIndex: There is none, and no embedder to make one with.
        InvalidParameter: An argument is of another kind.
        StorageError: The folder cannot be used, or the server does not answer.
    """
    check_kind("embedder", embedder, Embedder | EddyEmbeddingFunction | None, "an Embedder, or None")
    check_kind("late", late, bool | None, "True or False")
    check_kind("sentence_vectors", sentence_vectors, bool | None, "True or False")
    check_kind("timeout", timeout, int | float, "a number of seconds")
    if passage_size is not None:
        check_options({"passage_size": passage_size})
    checked = check_index_name(name)
    connection = connect(place, create=embedder is not None, timeout=timeout)
    sizes = {"passage_size": passage_size, "late": late, "sentence_vectors": sentence_vectors}
    return Index(Store(connection, checked), embedder, {k: v for k, v in sizes.items() if v is not None})
