"""`Index`: an index of documents in Chroma that knows what made its vectors, and loses none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from chroma_eddy.embedding_function import EddyEmbeddingFunction
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.options import ALPHA, Fusion, Query, Unit, conjunction
from chroma_eddy.query.search import search
from chroma_eddy.storage.names import DOCUMENTS, MAIN, NEXT, SENTENCES
from chroma_eddy.types import Document, Hit, Row, Status
from chroma_eddy.write import pieces as writing_pieces
from chroma_eddy.write import rebuild
from chroma_eddy.write.integrity import check_rows, remove_documents
from chroma_eddy.write.pieces import Piece
from chroma_eddy.write.repair import check_vectors, repair
from chroma_eddy.write.writer import Encode, Progress, Writer, WriteReport
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations import check_kind, check_one

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch


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
        return self.read_with_reload(lambda _: self._status())

    def _status(self) -> Status:
        rows = self.entries()
        following = self.store.with_suffix(NEXT)
        return Status(
            name=self.name,
            fingerprint=self.settings.fingerprint,
            settings=self.settings.embedder,
            dimension=self._dimension,
            documents=sum(bool(row.digest) for row in rows.values()),
            passages=self.store.count(MAIN),
            sentences=self.store.count(SENTENCES),
            incomplete=tuple(id_ for id_, row in rows.items() if not row.complete),
            fitted_on=0 if self._post is None else self._post.count,
            rebuilt=None if following.find() is None else following.count(DOCUMENTS),
        )

    def check(self, *, full: bool = False) -> dict[str, str]:
        """Find documents with damaged rows or vectors.

        Rows: all are read. Something else has changed documents with missing rows, another text or other metadata than
        were written. Queries leave them out from now on, and the next `upsert` or `sync` with them writes them again.
        Rows of versions that no document has are deleted, and the words are read anew.

        Vectors: rows are searched for by their own vectors. Documents with rows that are not found so stay as they
        are; `repair` embeds them again.

        Args:
            full: Search for all rows, not for a sample of 100 from each collection, and compare all vector files with
                their checksums; damaged files are put back from their copy.

        Returns:
            The problem of each such document, by id.

        Raises:
            DamagedVectors: Vector files are damaged, and so is their copy.
        """
        with self.writing():
            return {**check_vectors(self, full=full), **check_rows(self)}

    def repair(self, progress: Progress | None = None) -> dict[str, str]:
        """Check everything, and embed all texts again with the same embedder if vectors are damaged.

        Queries find the old vectors until the new ones are complete. A call that was stopped begins anew.

        Returns:
            The problem of each document whose stored rows are damaged, by id; `upsert` writes them again.

        Raises:
            NoIndex: The index was opened without an embedder.
            InvalidParameter: Vectors are damaged, and the index holds pieces, whose documents are not here.
        """
        return repair(self, progress)

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
    ) -> list[Hit]:
        """Find what answers a question by meaning and by words, best first, with exact cosines.

        Args:
            question: The question's text.
            k: Number of hits.
            where: Chroma's condition on metadata, `page` and `last_page`.
            where_document: Chroma's condition on passages' texts, such as `{"$contains": "ferry"}`.
            documents: Ids of the only documents to search; None: all.
            unit: What to search, and what a hit is: a "passage", a "sentence" or a "document".
            prefilter: Search only this many documents, the nearest as a whole; None: all.
            hybrid: Sort passages by cosine and BM25 together. None: where words are kept on disk, as every index in a
                folder has them. For an index on a server, True reads all passages, at the first query and after
                changes.
            fusion: How: by "scores", each standardised for the question over the library's passages, or by "ranks",
                reciprocal rank fusion, which measured lower.
            alpha: Weight of meaning among scores, from 0, words alone, to 1, meaning alone.
            mmr: Choose hits that differ from each other, by maximal marginal relevance.
            fetch_k: Number of rows that each of meaning and words contributes to `hybrid`, and that `mmr` chooses
                from; None: 100 and 20.
            lambda_mult: For `mmr`: 1 weighs only nearness, 0 only difference.
            sentences: Return the sentences of the passages, each with its cosine.

        Raises:
            InvalidText: The question is blank, or not valid Unicode.
            InvalidParameter: Options are out of range or exclude each other.
        """
        check_one(question)
        query = Query(**{name: value for name, value in locals().items() if name not in ("self", "question")})
        while True:
            embedder = self.embedder
            vector = embedder.encode_query(question, show_progress=False)[None].astype(np.float64)
            try:
                return search(self, vector, [question], query, embedder.fingerprint)[0]
            except FingerprintMismatch:  # another process or thread has replaced the index meanwhile
                if self.embedder.fingerprint == embedder.fingerprint:
                    raise

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
    ) -> list[list[Hit]]:
        """As `query`, for questions that are embedded already: vectors of shape (questions, dimension).

        `hybrid` needs the texts of the questions too. `fingerprint` is that of the embedder of the vectors; None takes
        them for the index's own. `ids` names the only rows to search; None: all.

        Raises:
            FingerprintMismatch: Another embedder made the index's vectors, perhaps in another process meanwhile.
        """
        other = ("self", "vectors", "questions", "fingerprint")
        query = Query(**{name: value for name, value in locals().items() if name not in (*other, "other")})
        if hybrid and questions is None:
            raise InvalidParameter("hybrid=True searches the words of questions=, which are missing")
        vectors = np.atleast_2d(np.asarray(vectors, np.float64))
        return search(self, vectors, questions, query, fingerprint or self.settings.fingerprint)

    # --- Rows

    def rows(
        self, ids: Sequence[str] | None = None, where: dict[str, Any] | None = None, *, texts: bool = False
    ) -> list[Row]:
        """Read passages and pieces that queries find, by ids, by Chroma's condition on metadata, or all of them."""
        return self.read_with_reload(lambda _: self._rows(ids, where, texts=texts))

    def _rows(self, ids: Sequence[str] | None, where: dict[str, Any] | None, *, texts: bool) -> list[Row]:
        if not self.exists:
            return []
        condition = conjunction([each for each in (where, self.visible_rows()) if each])
        got = self.store.get(MAIN, ids=ids, where=condition, metadatas=True, documents=texts)
        return [Row(*each) for each in zip(got.ids, got.metadatas, got.texts or [""] * len(got.ids), strict=True)]

    # --- Changes

    def fit_on_pieces(self, texts: Sequence[str]) -> None:
        """Create an index whose post-processing is fitted on texts of its first pieces; an existing one stays."""
        writing_pieces.fit_on_pieces(self, texts)

    def put_pieces(self, pieces: Iterable[Piece], fingerprint: str) -> None:
        """Write pieces in batches; those of known ids are replaced, and a second call changes nothing.

        Changed pieces are deleted before they are written again: after an interruption, call this again.

        Args:
            pieces: The pieces, with vectors of the embedder that the index is open with.
            fingerprint: That embedder's fingerprint when it made the vectors.

        Raises:
            FingerprintMismatch: The index's vectors come from another embedder by now.
            InvalidParameter: A piece cannot be stored, an id came twice, or the index's post-processing is not fitted.
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
        fit_least: int = 0,
        begin: Callable[[Index], None] | None = None,
        encode: Encode | None = None,
    ) -> WriteReport:
        """Embed and write new and changed documents; a second call changes nothing.

        After an interruption, call it again: documents that are stored whole are not embedded again.

        Args:
            documents: Whole documents, read one group at a time.
            progress: Called with the number of characters embedded and of documents written so far.
            fit_least: Least number of different passages on which a new index fits its post-processing; with fewer it
                does without, as `embedder.method` then says. 0: always fit.
            begin: Called with the index just before a new one is created, when its post-processing is decided.
            encode: Gives documents' vectors, made elsewhere by the same embedder without `post`, as `encoding` says.

        Raises:
            IndexInUse: Another process is writing.
            InvalidParameter: A document cannot be stored, an id came twice, or there are too few passages to fit
                post-processing on.
            InvalidText: A text cannot be embedded.
            StorageError: The database failed; complete documents are kept.
        """
        with self.writing():
            return Writer(self, progress, fit_least, begin, encode).run(documents)

    def sync(self, documents: Iterable[Document], progress: Progress | None = None) -> WriteReport:
        """As `upsert`, then remove every document that is not among these.

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
                Chroma's vector files keep ids and vectors, without texts, until `reindex`.

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
            late: Whether to pool passages from the pass over their document; None: as before, if the method allows it.
            sentence_vectors: Whether sentences have rows; None: as before.
            restart: Discard an unfinished reindexing and start again.
            progress: Called with the number of characters embedded and of documents written so far.

        Raises:
            FingerprintMismatch: Another reindexing is unfinished.
        """
        from eddy_embed import Embedder  # imports torch

        check_kind("embedder", embedder, Embedder | EddyEmbeddingFunction, "an Embedder")
        own = embedder.embedder if isinstance(embedder, EddyEmbeddingFunction) else embedder
        chosen = {"passage_size": passage_size, "late": late, "sentence_vectors": sentence_vectors}
        sizes = {**self.settings.sizes, "late": self.settings.late and own.can_embed_spans, **_given(chosen)}
        return rebuild.reindex(self, embedder, sizes, progress, restart)

    def refit(self, queries: Iterable[str] | None = None, progress: Progress | None = None) -> WriteReport:
        """Fit the post-processing again, on all sentences, and rewrite the vectors; the model does not run.

        For an index that has grown. As with `reindex`, queries find the old vectors until the new ones are complete,
        and a call that was stopped can be repeated.

        Args:
            queries: Sample questions, for a mean of their own; only these are embedded.
            progress: Called with the number of characters processed and of documents written so far.

        Raises:
            InvalidParameter: There is no post-processing, or it was fitted with queries and none are given.
        """
        return rebuild.refit(self, queries, progress)

    def close(self) -> None:
        """Close the database's files, unless somebody else uses the client."""
        self.store.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
