"""`EddyChroma`: an index of `chroma_eddy` as LangChain's vector store."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document

from chroma_eddy import Index, Piece, WriteReport, open_index
from eddy_embed.encoding.validation import check_kind, checked_text_list, refuse_unknown
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import document_identity, page_name, warn_of_blank, with_text
from eddy_embed.integrations.shared import in_worker
from langchain_eddy.chroma_rows import SEARCH, ChromaRows, check_exists
from langchain_eddy.database_place import database_place
from langchain_eddy.embeddings import EddyEmbeddings
from langchain_eddy.index_documents import hit_documents, to_index_document
from langchain_eddy.passages import display_name, join_pages
from langchain_eddy.retriever import EddyChromaRetriever

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.config import Settings
    from typing_extensions import Self

_NAMESPACE = uuid.UUID("2d1c41a0-0b0e-5c7e-8f6e-6f0a7e3a5b11")


class EddyChroma(ChromaRows):
    """Stores documents in the main collection of an index that knows its embedder.

    A document without an id gets one that follows from its text and metadata, so that adding it twice changes nothing.
    The store writes rows in batches that the database accepts, under the index's lock. Scores are cosines. An index in
    a folder keeps fitted post-processing, and is opened again by the method's name alone.

    Everything public of LangChain's `Chroma` is there under the same names, with the same defaults; but scores are
    cosines, `hybrid_search` takes a question, and images and Chroma's cloud are refused.

    Args:
        collection_name: Name of the index.
        embedding_function: The embeddings.
        persist_directory: Folder of the database; or:
        host: Host of a Chroma server; without any place, the store is in memory, and shared with nobody.
        port: Port of the server.
        headers: Headers of each request to the server.
        chroma_cloud_api_key: Refused: give a client.
        tenant: Tenant of the database.
        database: Name of the database.
        client_settings: Settings of Chroma's client.
        collection_metadata: Stored with the main collection; the space is the cosine's.
        collection_configuration: Refused unless it names the cosine's space, in which all indexes are.
        client: A client of Chroma.
        relevance_score_fn: Relevance score of a cosine distance; None: the cosine.
        create_collection_if_not_exists: Whether the first write may begin the index; False: it must exist.
        ssl: Whether to use https.
        passage_size: Most tokens in a passage of `ingest`; None: the index's own, 256 in a new one.
        timeout: Maximum time in seconds to wait while another process or thread writes.

    Raises:
        InvalidParameter: An argument is wrong, or there is more than one database.
        FingerprintMismatch: The index belongs to another embedder; the message compares both, field by field.
        ForeignCollection: Another program made a collection of that name.
        NoIndex: It must exist and does not.
    """

    def __init__(
        self,
        collection_name: str = "langchain",
        embedding_function: EddyEmbeddings | None = None,
        persist_directory: str | None = None,
        host: str | None = None,
        port: int | None = None,
        headers: dict[str, str] | None = None,
        chroma_cloud_api_key: str | None = None,
        tenant: str | None = None,
        database: str | None = None,
        client_settings: Settings | None = None,
        collection_metadata: dict[str, Any] | None = None,
        collection_configuration: Any = None,
        client: ClientAPI | None = None,
        relevance_score_fn: Callable[[float], float] | None = None,
        create_collection_if_not_exists: bool | None = True,
        *,
        ssl: bool = False,
        passage_size: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        given = locals()
        check_kind("embedding_function", embedding_function, EddyEmbeddings, "an EddyEmbeddings")
        spaces = [(collection_metadata or {}).get("hnsw:space")]
        spaces += [
            kind.get("space") for kind in dict(collection_configuration or {}).values() if isinstance(kind, dict)
        ]
        if set(spaces) - {None, "cosine"}:
            raise InvalidParameter(f"an index is in cosine space, not {max(filter(None, spaces))!r}; leave it out")
        assert embedding_function is not None
        self.index = open_index(
            database_place(given),
            collection_name,
            embedding_function.embedder,
            passage_size=passage_size,
            timeout=timeout,
        )
        self._embeddings, self.override_relevance_score_fn = embedding_function, relevance_score_fn
        if not create_collection_if_not_exists:
            check_exists(self.index)
        if own := {name: value for name, value in (collection_metadata or {}).items() if name != "hnsw:space"}:
            with self.index.writing():
                self.index.create()
                self.index.store.update_metadata(**own)

    @classmethod
    def from_index(cls, index: Index) -> Self:
        """Wrap an open index with an embedder."""
        check_kind("index", index, Index, "an index from chroma_eddy.open_index")
        self = cls.__new__(cls)
        self.index, self._embeddings = index, EddyEmbeddings.from_embedder(index.embedder)
        self.override_relevance_score_fn = None
        return self

    @classmethod
    def from_texts(  # type: ignore[override]
        cls,
        texts: list[str],
        embedding: EddyEmbeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        ids: list[str] | None = None,
        collection_name: str = "langchain",
        persist_directory: str | None = None,
        **settings: Any,
    ) -> Self:
        """Make a store, with further parameters of the class, and add texts as `add_texts` does."""
        self = cls(collection_name, embedding, persist_directory, **settings)
        self.add_texts(texts, metadatas, ids=ids)
        return self

    @classmethod
    def from_documents(  # type: ignore[override]
        cls,
        documents: list[Document],
        embedding: EddyEmbeddings | None = None,
        ids: list[str] | None = None,
        collection_name: str = "langchain",
        persist_directory: str | None = None,
        **settings: Any,
    ) -> Self:
        """Make a store, with further parameters of the class, and add documents as `add_documents` does."""
        self = cls(collection_name, embedding, persist_directory, **settings)
        self.add_documents(documents, **({} if ids is None else {"ids": ids}))
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

    # --- Reading

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
        self,
        query: str,
        k: int = 4,
        filter: dict[str, Any] | None = None,
        where_document: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """As `similarity_search`, with cosines; with `hybrid`, with sums for meaning and words."""
        refuse_unknown("EddyChroma", kwargs, SEARCH)
        hits = self.index.query(query, k, where=filter, where_document=where_document, **{"hybrid": False, **kwargs})
        return list(zip(hit_documents(hits), (hit.score for hit in hits), strict=True))

    def hybrid_search(  # type: ignore[override]
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

    def _select_relevance_score_fn(self) -> Any:
        chosen = self.override_relevance_score_fn
        return (lambda cosine: cosine) if chosen is None else lambda cosine: chosen(1 - cosine)


def _default_id(text: str, metadata: Mapping[str, Any]) -> str:
    return str(uuid.uuid5(_NAMESPACE, json.dumps([text, sorted(metadata.items())], default=repr)))
