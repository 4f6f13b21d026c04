"""`Index`: an index of documents in Chroma that knows what made its vectors, and loses none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.errors import IndexInUse
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.highlights import sentence_vectors
from chroma_eddy.query.options import ALPHA, Fusion, Query, Unit, conjunction
from chroma_eddy.query.reranking import reranker_of
from chroma_eddy.query.search import search
from chroma_eddy.rows.conditions import check_conditions
from chroma_eddy.rows.documents import read_embedded
from chroma_eddy.rows.schema import DIGEST
from chroma_eddy.storage.names import DOCUMENTS, MAIN, NEXT
from chroma_eddy.types import Document, Hit, Row, Status
from chroma_eddy.write import pieces as writing_pieces
from chroma_eddy.write.integrity import check_rows, check_vectors, remove_documents
from chroma_eddy.write.pieces import Piece
from chroma_eddy.write.rebuild import reindex_core
from chroma_eddy.write.writer import Encode, Progress, Writer, WriteReport
from eddy_embed.encoding.document import LongDocument
from eddy_embed.encoding.validation import check_kind, check_one
from eddy_embed.errors import FingerprintMismatch, InvalidParameter

if TYPE_CHECKING:
    from eddy_embed import Embedder, Reranker  # import torch


class Index(IndexCore):
    """Documents in a Chroma database: vectors of passages, of sentences and of whole documents.

    `open_index` makes it. One process at a time may write and any number may read; until a new version of a document
    is complete, queries find the old one.

    Attributes:
        name: Name of the main collection.
        settings: What makes the vectors.
        store: The collections.
    """

    def status(self) -> Status:
        """Count what the index contains."""
        return self.read(self._status)

    def _status(self) -> Status:
        rows = [row for row in self.entries().values() if row.digest]
        following = self.store.with_suffix(NEXT)
        return Status(
            name=self.name,
            fingerprint=self.settings.fingerprint,
            settings=self.settings.embedder,
            dimension=self.dimension,
            documents=len(rows),
            passages=self.store.count(MAIN),
            sentences=sum(row.sentences for row in rows),
            incomplete=tuple(self.incomplete()),
            rebuilt=None if following.find() is None else following.count(DOCUMENTS),
        )

    def check(self, *, full: bool = False) -> dict[str, str]:
        """Find documents with damaged rows, and mend damaged vectors.

        Rows: all are read. Something else has changed documents with missing rows, another text or other metadata than
        were written. Queries leave them out from now on, and the next `upsert` or `sync` with them writes them again.
        Rows of versions that no document has are deleted, and the words are read anew.

        Vectors: rows are searched for by their own vectors. If one is not found so, Chroma's files are made anew from
        the vectors beside them, or those from Chroma's, whichever is sound; no model runs.

        Args:
            full: Search for all rows, not for a sample of 100 from each collection.

        Returns:
            The problem of each document with damaged rows, by id.

        Raises:
            StorageError: Vectors are damaged in both places: `reindex` embeds the texts again.
        """
        with self.writing():
            problems = check_rows(self)
            check_vectors(self, full=full)
            return problems

    # --- Queries

    def query(
        self,
        question: str,
        k: int = 5,
        *,
        where: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        documents: Sequence[str] | None = None,
        unit: Unit = "passage",
        prefilter: int | None = None,
        hybrid: bool | None = None,
        fusion: Fusion = "scores",
        alpha: float = ALPHA,
        mmr: bool = False,
        fetch_k: int | None = None,
        lambda_mult: float = 0.5,
        sentences: bool = False,
        rerank: bool | Reranker = False,
        rerank_from: int | None = None,
        rerank_seconds: float | None = None,
        progress: Progress | None = None,
    ) -> list[Hit]:
        """Find what answers a question by meaning and by words, best first, with exact cosines.

        Args:
            question: The question's text; a hybrid query honours an "exact phrase", and -words that must be absent.
            k: Number of hits.
            where: Chroma's condition on metadata, `page` and `last_page`.
            where_document: Chroma's condition on passages' texts, such as `{"$contains": "ferry"}`.
            documents: Ids of the only documents to search; None: all.
            unit: What to search, and what a hit is: a "passage", a "sentence" or a "document".
            prefilter: Search only this many documents, the nearest as a whole; None: all.
            hybrid: Sort passages by cosine and BM25 together. None: where words are kept on disk, as every index in a
                folder has them. For an index on a server, True reads all passages, at the first query and after
                changes.
            fusion: How: by "scores", the cosine in standard deviations over the library's passages and the share that a
                passage has of what the question's words tell, or by "ranks", reciprocal rank fusion.
            alpha: Weight of meaning among scores, from 0, words alone, to 1, meaning alone; the default serves language
                models and trained encoders.
            mmr: Choose hits that differ from each other, by maximal marginal relevance.
            fetch_k: Number of rows that each of meaning and words contributes to `hybrid`, and that `mmr` chooses
                from; None: 100 and 20.
            lambda_mult: For `mmr`: 1 weighs only nearness, 0 only difference.
            sentences: Return the sentences of the passages, each with its cosine.
            rerank: Have a language model judge the best passages by the likelihood that it gives the question after
                each, and sort by both: True for the model whose vectors are in the index, or a `Reranker`.
            rerank_from: How many of the best passages it re-ranks; None: 10.
            rerank_seconds: Judge the best of them for so long; None: all.
            progress: Called with windows read, their total, and "rerank"; what it raises ends the query.

        Raises:
            UnsupportedModel: The model of the index cannot judge, such as an encoder's.
            InvalidText: The question is blank, or not valid Unicode.
            InvalidParameter: Options are out of range or exclude each other.
        """
        check_one(question)
        options = {name: value for name, value in locals().items() if name not in ("self", "question")}
        query = Query(**{**options, "rerank": reranker_of(self, rerank)})
        for _ in range(2):  # another process may make the index anew meanwhile
            embedder = self.embedder
            vector = embedder.encode_query(question, show_progress=False)[None].astype(np.float64)
            try:
                return search(self, vector, [question], query, embedder.fingerprint)[0]
            except FingerprintMismatch:
                if self.embedder.fingerprint == embedder.fingerprint:
                    raise
        raise IndexInUse(f"index {self.name!r} is being made anew all the time: ask again")

    def search(
        self,
        vectors: ArrayLike,
        k: int = 5,
        *,
        questions: Sequence[str] | None = None,
        fingerprint: str | None = None,
        ids: Sequence[str] | None = None,
        where: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        documents: Sequence[str] | None = None,
        unit: Unit = "passage",
        prefilter: int | None = None,
        hybrid: bool = False,
        fusion: Fusion = "scores",
        alpha: float = ALPHA,
        mmr: bool = False,
        fetch_k: int | None = None,
        lambda_mult: float = 0.5,
        sentences: bool = False,
        rerank: bool | Reranker = False,
        rerank_from: int | None = None,
        rerank_seconds: float | None = None,
    ) -> list[list[Hit]]:
        """As `query`, for questions that are embedded already: vectors of shape (questions, dimension).

        `hybrid` needs the texts of the questions too. `fingerprint` is that of the embedder of the vectors; None takes
        them for the index's own. `ids` names the only rows to search; None: all.

        Raises:
            FingerprintMismatch: Another embedder made the index's vectors, perhaps in another process meanwhile.
        """
        options = {k: v for k, v in locals().items() if k not in ("self", "vectors", "questions", "fingerprint")}
        query = Query(**{**options, "rerank": reranker_of(self, rerank)})
        if (hybrid or rerank) and questions is None:
            raise InvalidParameter("hybrid=True and rerank=True read the words of questions=, which are missing")
        vectors = np.atleast_2d(np.asarray(vectors, np.float64))
        return search(self, vectors, questions, query, fingerprint)

    # --- Rows

    def rows(
        self, ids: Sequence[str] | None = None, where: dict[str, Any] | None = None, *, texts: bool = False
    ) -> list[Row]:
        """Read passages and pieces that queries find, by ids, by Chroma's condition on metadata, or all of them."""
        check_conditions(where)
        return self.read(lambda: self._rows(ids, where, texts=texts))

    def _rows(self, ids: Sequence[str] | None, where: dict[str, Any] | None, *, texts: bool) -> list[Row]:
        if not self.exists:
            return []
        hidden = sorted(self.hidden_versions())
        condition = conjunction([each for each in (where, hidden and {DIGEST: {"$nin": hidden}}) if each])
        got = self.store.get(MAIN, ids=ids, where=condition, metadatas=True, documents=texts)
        return [Row(*each) for each in zip(got.ids, got.metadatas, got.texts or [""] * len(got.ids), strict=True)]

    def embedded(self, document: str) -> LongDocument | None:
        """Read a document by its id, with its vectors; None if queries do not find it.

        Its sentences' vectors are stored where the method runs layers; elsewhere they are read out of the passages.
        Sentences come without their number of tokens.
        """
        if not self.exists:
            return None
        return self.read(lambda: read_embedded(self.store, document, partial(sentence_vectors, self)))

    # --- Changes

    def put_pieces(self, pieces: Iterable[Piece], fingerprint: str) -> None:
        """Write pieces in batches; those of known ids are replaced, and a second call changes nothing.

        Changed pieces are deleted before they are written again: after an interruption, call this again.

        Args:
            pieces: The pieces, with vectors of the embedder that the index is open with.
            fingerprint: That embedder's fingerprint when it made the vectors.

        Raises:
            FingerprintMismatch: The index's vectors come from another embedder by now.
            InvalidParameter: A piece cannot be stored, or an id came twice.
            ForeignCollection: The row of an id is no piece.
        """
        writing_pieces.put_pieces(self, pieces, fingerprint)

    def remove_pieces(self, *, ids: Sequence[str] | None = None, where: dict[str, Any] | None = None) -> int:
        """Remove pieces by id or by Chroma's condition on their metadata, or all; return the number that existed."""
        return writing_pieces.remove_pieces(self, ids=ids, where=where)

    def upsert(
        self,
        documents: Iterable[Document],
        progress: Progress | None = None,
        *,
        encode: Encode | None = None,
    ) -> WriteReport:
        """Embed and write new and changed documents; a second call changes nothing.

        After an interruption, call it again: documents that are stored whole are not embedded again. A warning names
        blank documents, which are left out; an earlier version of one stays.

        Args:
            documents: Whole documents, read one group at a time.
            progress: Called with the characters embedded and the documents written so far.
            encode: Gives documents' vectors, made elsewhere by the same embedder as `encoding` says.

        Raises:
            IndexInUse: Another process is writing.
            InvalidParameter: A document cannot be stored, or an id came twice.
            InvalidText: A text cannot be embedded.
            StorageError: The database failed; complete documents are kept.
        """
        with self.writing():
            return Writer(self, progress, encode).run(documents)

    def sync(self, documents: Iterable[Document], progress: Progress | None = None) -> WriteReport:
        """As `upsert`, then remove every document that is not among these, or is blank.

        Raises:
            InvalidParameter: No document was given: a folder that is not mounted would empty the index.
        """
        with self.writing():
            writer = Writer(self, progress)
            report = writer.run(documents)
            if not writer.ids:
                raise InvalidParameter(
                    "sync was given no document, and would empty the index; to do so, call remove with the ids"
                )
            report.removed = remove_documents(self, [id_ for id_ in self.entries() if id_ not in writer.ids])
            return report

    def remove(self, ids: Iterable[str], *, erase: bool = False) -> int:
        """Remove documents by their ids; return the number of those that existed.

        Args:
            ids: The documents' ids.
            erase: Erase the texts of these and of all documents that were removed or replaced before from the files,
                which Chroma only marks as deleted. It rewrites the database, which needs time and as much room again.
                The files of vectors keep ids and vectors, without texts, until `reindex`.

        Raises:
            InvalidParameter: `erase` is asked of a server, or while a reindexing is unfinished.
        """
        chosen = [ids] if isinstance(ids, str) else list(ids)
        with self.writing():
            return remove_documents(self, chosen, erase=erase)

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

        The new index is built beside this one and replaces it when it is complete; until then, queries find this one.
        After an interruption, a call with the same arguments goes on where the last one stopped.

        Args:
            embedder: The new embedder.
            passage_size: Most tokens in a passage; None: as before.
            late: Whether to pool passages from the pass over their document; None: where no layer runs.
            sentence_vectors: Whether sentences' vectors are stored; None: as before.
            restart: Discard an unfinished reindexing and start again.
            progress: Called with the number of characters embedded and of documents written so far.

        Raises:
            FingerprintMismatch: Another reindexing is unfinished.
        """
        from eddy_embed import Embedder  # import torch

        check_kind("embedder", embedder, Embedder | EddyEmbeddingFunction, "an Embedder")
        own = embedder.embedder if isinstance(embedder, EddyEmbeddingFunction) else embedder
        given = {"passage_size": passage_size, "late": late, "sentence_vectors": sentence_vectors}
        chosen = {name: value for name, value in given.items() if value is not None}
        sizes = {**self.settings.sizes, "late": own.reads_late, **chosen}
        return reindex_core(self, embedder, sizes, progress, restart)

    def discard_rebuilt(self) -> None:
        """Delete what an unfinished reindexing has done, if there is one.

        Raises:
            IndexInUse: Another process is writing.
        """
        with self.writing():
            self.store.with_suffix(NEXT, texts_only=True).drop_all()

    def close(self) -> None:
        """Close the database's files, unless somebody else uses the client."""
        self.store.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
