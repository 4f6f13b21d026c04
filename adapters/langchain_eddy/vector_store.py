"""`EddyChroma`: an index of `chroma_eddy` as LangChain's vector store."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from chroma_eddy import PIECE, Index, Piece, WriteReport, memory_client, open_index
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations import (
    check_kind,
    checked_text_list,
    document_identity,
    in_worker,
    page_name,
    refuse_unknown,
    warn_of_blank,
    with_text,
)
from langchain_eddy.embeddings import EddyEmbeddings
from langchain_eddy.index_documents import hit_documents, to_document, to_index_document
from langchain_eddy.passages import display_name, join_pages
from langchain_eddy.retriever import EddyChromaRetriever

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from typing_extensions import Self

_NAMESPACE = uuid.UUID("2d1c41a0-0b0e-5c7e-8f6e-6f0a7e3a5b11")
_OF_TEXT = {"hybrid", "fusion", "alpha", "rerank", "rerank_from", "rerank_seconds"}
"""Arguments that need the text of a question."""
_SEARCH = ("where_document", "documents", "prefilter", "fetch_k", *_OF_TEXT)


class EddyChroma(VectorStore):
    """Stores documents in the main collection of an index that knows its embedder.

    A document without an id gets one that follows from its text and metadata, so that adding it twice changes nothing.
    The store writes rows in batches that the database accepts, under the index's lock. Scores are cosines. An index in
    a folder keeps fitted post-processing, and is opened again by the method's name alone.

    Args:
        collection_name: Name of the index.
        embedding_function: The embeddings.
        persist_directory: Folder of the database; or:
        client: A client of Chroma; or:
        host: Host of a Chroma server; without any of these, the store is in memory, and shared with nobody.
        port: Port of the server.
        ssl: Whether to use https.
        passage_size: Most tokens in a passage of `ingest`; None: the index's own, 256 in a new one.
        timeout: Maximum time in seconds to wait while another process or thread writes.

    Raises:
        InvalidParameter: An argument is wrong, or there is more than one database.
        FingerprintMismatch: The index belongs to another embedder; the message compares both, field by field.
        ForeignCollection: Another program made a collection of that name.
    """

    def __init__(
        self,
        collection_name: str,
        embedding_function: EddyEmbeddings,
        *,
        persist_directory: str | None = None,
        client: ClientAPI | None = None,
        host: str | None = None,
        port: int | None = None,
        ssl: bool = False,
        passage_size: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        check_kind("embedding_function", embedding_function, EddyEmbeddings, "an EddyEmbeddings")
        url = None if host is None else f"{'https' if ssl else 'http'}://{host}:{port or (443 if ssl else 8000)}"
        given = [place for place in (persist_directory, client, url) if place is not None] or [memory_client()]
        if len(given) != 1:
            raise InvalidParameter("give one place of the database: persist_directory=, client=, or host= and port=")
        self.index = open_index(
            given[0], collection_name, embedding_function.embedder, passage_size=passage_size, timeout=timeout
        )
        self._embeddings = embedding_function

    @classmethod
    def from_index(cls, index: Index) -> Self:
        """Wrap an open index with an embedder."""
        check_kind("index", index, Index, "an index from chroma_eddy.open_index")
        self = cls.__new__(cls)
        self.index, self._embeddings = index, EddyEmbeddings.from_embedder(index.embedder)
        return self

    @classmethod
    def from_texts(  # type: ignore[override]  # the base class has parameters without a type
        cls,
        texts: list[str],
        embedding: EddyEmbeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        collection_name: str = "langchain",
        **settings: Any,
    ) -> Self:
        """Make a store, with further parameters of the class, and add texts as `add_texts` does."""
        self = cls(collection_name, embedding, **settings)
        self.add_texts(texts, metadatas, ids=ids)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.index!r})"

    @property
    def embeddings(self) -> EddyEmbeddings:
        """The embeddings that the index has of documents and queries, also after `Index.reindex`."""
        if self._embeddings.fingerprint != self.index.embedder.fingerprint:
            self._embeddings = EddyEmbeddings.from_embedder(self.index.embedder)
        return self._embeddings

    # --- Writing

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed texts, each by itself, and write them; texts of known ids are replaced.

        Args:
            texts: Pieces of documents, such as a splitter gives; blank ones are left out, and named in a warning.
            metadatas: Metadata of each text.
            ids: Id of each text; None for ids that follow from text and metadata.
            batch_size: Passed by LangChain's indexing, and ignored.
            **kwargs: Refused.

        Returns:
            The ids of the texts that are not blank.

        Raises:
            InvalidParameter: A text or its metadata cannot be stored, or the lists differ in length.
            InvalidText: A text is no string, or not valid Unicode.
        """
        refuse_unknown("EddyChroma.add_texts", kwargs, ())
        given = checked_text_list(texts, blank=True)
        about = metadatas if metadatas is not None else [{} for _ in given]
        named = list(ids) if ids is not None else [None] * len(given)
        if not len(given) == len(about) == len(named):
            raise InvalidParameter(
                f"there are {len(given)} texts, {len(about)} metadatas and {len(named)} ids; give one of each for each"
            )
        kept = [at for at, text in enumerate(given) if text.strip()]
        blank = [page_name(about[at]) or f"number {at}" for at in sorted({*range(len(given))} - {*kept})]
        warn_of_blank(blank, len(given), "row", "texts")
        given, about, named = [given[at] for at in kept], [about[at] for at in kept], [named[at] for at in kept]
        names = [id_ or _default_id(text, metadata) for id_, text, metadata in zip(named, given, about, strict=True)]
        if given:
            # Equal texts without ids share a row.
            own = {name: at for at, name in enumerate(names) if named[at] is None}
            kept = [at for at, name in enumerate(names) if own.get(name, at) == at]
            embedder = self.index.embedder
            vectors = embedder.encode_document([given[at] for at in kept], show_progress=False)
            pieces = [
                Piece(names[at], document_identity(None, about[at]) or names[at], given[at], vector, about[at])
                for at, vector in zip(kept, vectors, strict=True)
            ]
            self.index.put_pieces(pieces, embedder.fingerprint)
        return names

    async def aadd_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **kwargs: Any
    ) -> list[str]:
        """As `add_texts`, in a thread."""
        return await in_worker(partial(self.add_texts, texts, metadatas, **kwargs))

    def ingest(self, documents: Iterable[Document]) -> WriteReport:
        """Write whole documents; the index splits them into passages and embeds these in their context.

        As `Index.upsert`: unchanged documents are not embedded again, and a changed document replaces its rows.

        Blank documents are left out, and named in a warning. Pages of a file, as LangChain's loaders give them, are
        joined, as `join_pages` does.

        Args:
            documents: Whole documents, each with an id or a `source` that identifies it across runs, or pages.

        Raises:
            InvalidParameter: A document has neither, two are the same, or metadata cannot be stored.
        """
        check_kind("documents", documents, Iterable, "a list of LangChain's documents")
        joined = join_pages([documents] if isinstance(documents, Document) else list(documents))
        given = with_text(joined, lambda document: document.page_content, display_name, "passage")
        return self.index.upsert(to_index_document(document, number) for number, document in enumerate(given))

    async def aingest(self, documents: Iterable[Document]) -> WriteReport:
        """As `ingest`, in a thread."""
        return await in_worker(partial(self.ingest, documents))

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Remove texts by their ids; unknown ids are ignored.

        Raises:
            InvalidParameter: There are no ids, or one is a passage of a document that can only be removed whole.
        """
        refuse_unknown("EddyChroma.delete", kwargs, ())
        if ids is None:
            raise InvalidParameter("delete was given no ids, and would empty the index; name them")
        for row in self.index.rows(ids):
            if PIECE not in row.metadata:
                raise InvalidParameter(
                    f"{row.id!r:.80} is a passage of a document that the index has cut itself, and which goes as a "
                    "whole: store.index.remove([...])"
                )
        self.index.remove_pieces(ids=ids)
        return True

    # --- Reading

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Get documents by their ids, in that order, without unknown ids."""
        by_id = {row.id: to_document(row) for row in self.index.rows(list(ids), texts=True)}
        return [by_id[id_] for id_ in ids if id_ in by_id]

    def similarity_search(
        self, query: str, k: int = 4, filter: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Document]:
        """Find the documents nearest to a query.

        Args:
            query: Text of the query.
            k: Number of documents.
            filter: Chroma's condition on metadata.
            **kwargs: Arguments of `Index.query`: `where_document`, `documents`, `prefilter`; with `hybrid=True` also
                `fusion`, `alpha` and `fetch_k`; `rerank`, `rerank_from` and `rerank_seconds`.
        """
        return [document for document, _ in self.similarity_search_with_score(query, k, filter, **kwargs)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """As `similarity_search`, with cosines; with `hybrid`, with sums for meaning and words."""
        refuse_unknown("EddyChroma", kwargs, _SEARCH)
        hits = self.index.query(query, k, where=filter, **{"hybrid": False, **kwargs})
        return list(zip(hit_documents(hits), (hit.score for hit in hits), strict=True))

    def hybrid_search(
        self, query: str, k: int = 4, filter: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Document]:
        """As `similarity_search`, by words and meaning together."""
        return self.similarity_search(query, k, filter, **{**kwargs, "hybrid": True})

    def search(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Search as `search_type` says: one of LangChain's, or "hybrid"."""
        if search_type == "hybrid":
            return self.hybrid_search(query, **kwargs)
        return super().search(query, search_type, **kwargs)

    async def asearch(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """As `search`, in a thread."""
        return await in_worker(partial(self.search, query, search_type, **kwargs))

    def as_retriever(self, **kwargs: Any) -> EddyChromaRetriever:
        """Make a retriever; `search_type` is one of LangChain's, or "hybrid".

        Args:
            **kwargs: `search_type`, `search_kwargs` and fields of LangChain's retriever.
        """
        tags = [*(kwargs.pop("tags", None) or []), *self._get_retriever_tags()]
        return EddyChromaRetriever(vectorstore=self, tags=tags, **kwargs)

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, filter: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Document]:
        """Find the documents nearest to a vector of `embeddings.embed_query`; a list has no fingerprint to check."""
        refuse_unknown("EddyChroma", kwargs, set(_SEARCH) - _OF_TEXT)
        return hit_documents(self.index.search(np.asarray(embedding)[None], k, where=filter, **kwargs)[0])

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Find diverse documents near to a query, by maximal marginal relevance.

        Args:
            query: Text of the query.
            k: Number of documents.
            fetch_k: Number of nearest documents to choose from.
            lambda_mult: 1 for relevance only, 0 for diversity only.
            filter: Chroma's condition on metadata.
            **kwargs: `where_document`, `documents`, `prefilter`; `hybrid=True`, `fusion` and `alpha`.
        """
        refuse_unknown("EddyChroma", kwargs, set(_SEARCH) - {"fetch_k"})
        own: dict[str, Any] = {"fetch_k": fetch_k, "lambda_mult": lambda_mult, "where": filter, "hybrid": False}
        return hit_documents(self.index.query(query, k, mmr=True, **{**own, **kwargs}))

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """As `max_marginal_relevance_search`, for a vector of `embeddings.embed_query`."""
        refuse_unknown("EddyChroma", kwargs, set(_SEARCH) - _OF_TEXT - {"fetch_k"})
        own: dict[str, Any] = {"fetch_k": fetch_k, "lambda_mult": lambda_mult, "where": filter}
        return hit_documents(self.index.search(np.asarray(embedding)[None], k, mmr=True, **own, **kwargs)[0])

    def _select_relevance_score_fn(self) -> Any:
        return lambda cosine: cosine


def _default_id(text: str, metadata: Mapping[str, Any]) -> str:
    return str(uuid.uuid5(_NAMESPACE, json.dumps([text, sorted(metadata.items())], default=repr)))
