"""`EddyChroma`: an index of `chroma_eddy` as LangChain's vector store."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import chromadb
import numpy as np
from chromadb.config import Settings
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStoreRetriever

from chroma_eddy import (
    DIGEST,
    RESERVED,
    Hit,
    Index,
    NoIndex,
    WriteReport,
    memory_client,
    open_index,
    threaded,
    user_metadata,
)
from chroma_eddy import Document as Whole
from eddy_embed.encoding.validation import check_kind, checked_text_list, refuse_unknown
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import (
    DOCUMENT,
    LEFT_OUT,
    Pages,
    document_identity,
    page_name,
    passage_metadata,
    warn_of_blank,
    with_text,
)
from langchain_eddy.embeddings import EddyEmbeddings
from langchain_eddy.passages import display_name, document_id, join_pages

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from typing_extensions import Self

Filter = dict[str, Any] | None
Scored = list[tuple[Document, float]]
_PLACES = ("persist_directory", "client", "host", "chroma_cloud_api_key")
_DATABASE = ("tenant", "database", "client_settings")
_BESIDE = {"": _DATABASE, "persist_directory": _DATABASE, "host": ("port", "headers", "ssl", *_DATABASE), "client": ()}
"""Arguments that go with each place."""
_NAMESPACE = uuid.UUID("2d1c41a0-0b0e-5c7e-8f6e-6f0a7e3a5b11")
_OF_VECTORS = ("where_document", "documents", "fetch_k", "lambda_mult", "mmr")
"""Arguments of `Index.query` that all searches take."""
_OF_TEXTS, _TYPES = (*_OF_VECTORS, "alpha", "rerank", "rerank_from", "rerank_seconds"), {"hybrid": "similarity"}


class EddyChroma(Chroma):
    """Stores documents in the main collection of an index that knows its embedder, and finds them by hybrid search.

    A document without an id gets one that follows from its text and metadata, so that adding it twice changes nothing.
    Everything public of LangChain's `Chroma` is there, except that searches by text are by vectors and keywords (BM25),
    a higher score is better, `hybrid_search` takes a question, and images and Chroma's cloud are refused.

    Args:
        collection_name: Name of the index.
        embedding_function: The embeddings.
        persist_directory: Folder of the database.
        collection_metadata: Stored with the main collection.
        collection_configuration: Refused unless it names the cosine's space, in which all indexes are.
        relevance_score_fn: Relevance score of a cosine distance; None: the score.
        create_collection_if_not_exists: Whether the first write may begin the index; False: it must exist.
        alpha: Weight of the vectors in searches by text, from 0, keywords alone, to 1, vectors alone; None: 0.5.
        passage_size: Most tokens in a passage of `ingest`; None: the index's own, 256 in a new one.
        timeout: Maximum time in seconds to wait while another process or thread writes.
        **place: Another database, as `Chroma` names it: a `client`, or the `host`, `port`, `headers` and `ssl` of a
            server; with `tenant`, `database` and `client_settings`. Without any, in memory, and shared with nobody.

    Raises:
        FingerprintMismatch: The index belongs to another embedder; the message compares both, field by field.
        ForeignCollection: Another program made a collection of that name.
    """

    index: Index
    alpha: float | None = None

    def __init__(
        self,
        collection_name: str = "langchain",
        embedding_function: EddyEmbeddings | None = None,
        persist_directory: str | None = None,
        *,
        collection_metadata: dict[str, Any] | None = None,
        collection_configuration: Any = None,
        relevance_score_fn: Callable[[float], float] | None = None,
        create_collection_if_not_exists: bool | None = True,
        alpha: float | None = None,
        passage_size: int | None = None,
        timeout: float = 60.0,
        **place: Any,
    ) -> None:
        check_kind("embedding_function", embedding_function, EddyEmbeddings, "an EddyEmbeddings")
        assert embedding_function is not None
        metadata, configured = dict(collection_metadata or {}), (collection_configuration or {}).get("hnsw") or {}
        if others := {metadata.pop("hnsw:space", None), configured.get("space")} - {None, "cosine"}:
            raise InvalidParameter(f"an index is in cosine space, not {others.pop()!r}; leave it out")
        database = _database({"persist_directory": persist_directory, **place})
        embedder = embedding_function.embedder
        self.index = open_index(database, collection_name, embedder, passage_size=passage_size, timeout=timeout)
        self._embeddings, self.override_relevance_score_fn, self.alpha = embedding_function, relevance_score_fn, alpha
        if not create_collection_if_not_exists and not self.index.exists:
            raise NoIndex(f"no index {collection_name!r}: leave out create_collection_if_not_exists=False to begin one")
        if metadata:
            self.index.annotate(**metadata)

    @classmethod
    def from_index(cls, index: Index, *, alpha: float | None = None) -> Self:
        """Wrap an open index with an embedder."""
        check_kind("index", index, Index, "an index from chroma_eddy.open_index")
        self = cls.__new__(cls)
        self.index, self._embeddings = index, EddyEmbeddings.from_embedder(index.embedder)
        self.override_relevance_score_fn, self.alpha = None, alpha
        return self

    @classmethod
    def from_texts(  # type: ignore[override]
        cls, texts: list[str], embedding: Any = None, metadatas: Any = None, ids: Any = None, **settings: Any
    ) -> Self:
        """Make a store, with further parameters of the class, and add texts as `add_texts` does."""
        self = cls(embedding_function=embedding, **settings)
        self.add_texts(texts, metadatas, ids)
        return self

    @classmethod
    def from_documents(  # type: ignore[override]
        cls, documents: list[Document], embedding: Any = None, ids: Any = None, **settings: Any
    ) -> Self:
        """As `from_texts`, of documents with ids of their own."""
        contents, metadatas = ([getattr(each, name) for each in documents] for name in ("page_content", "metadata"))
        return cls.from_texts(contents, embedding, metadatas, ids or [each.id for each in documents], **settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.index!r})"

    @property
    def embeddings(self) -> EddyEmbeddings:
        """The embeddings that the index has of documents and queries, also after `Index.reindex`."""
        if self._embeddings.fingerprint != self.index.embedder.fingerprint:
            self._embeddings = EddyEmbeddings.from_embedder(self.index.embedder)
        return self._embeddings

    @property
    def searches_by(self) -> str:
        """How searches by text search: "hybrid", or "vectors", as chosen or where there are too many rows."""
        return "vectors" if self.alpha == 1 else self.index.searches_by

    @property
    def _collection(self) -> chromadb.Collection:
        return self.index.collection

    def add_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, ids: Any = None, **kwargs: Any
    ) -> list[str]:
        """Embed texts, each by itself, and write them, those of known ids in their place; return the ids.

        Args:
            texts: Chunks of documents, such as a splitter gives; blank ones are left out, and a warning names them.
            metadatas: Metadata of each text.
            ids: Id of each text; None for ids that follow from text and metadata.
            **kwargs: `batch_size`, which LangChain's indexing passes, is ignored.
        """
        refuse_unknown("EddyChroma.add_texts", kwargs, ("batch_size",))
        contents = checked_text_list(texts, blank=True)
        rows = [{} for _ in contents] if metadatas is None else [row or {} for row in metadatas]
        given_ids = [None for _ in contents] if ids is None else list(ids)
        if not len(contents) == len(rows) == len(given_ids):
            raise InvalidParameter(
                f"{len(contents)} texts, {len(rows)} metadatas, {len(given_ids)} ids: give as many of each"
            )
        for id_ in given_ids:
            check_kind("ids", id_, str | None, "a list of strings")
        blank = [page_name(rows[at]) or f"number {at}" for at, text in enumerate(contents) if not text.strip()]
        warn_of_blank(blank, len(contents), "row", "texts")
        names = {at: given_ids[at] or _default_id(text, rows[at]) for at, text in enumerate(contents) if text.strip()}
        last = {name: at for at, name in names.items() if not given_ids[at]}
        numbers = [at for at, name in names.items() if last.get(name, at) == at]  # equal texts share a row
        if numbers:
            embedder, written = self.index.embedder, [contents[at] for at in numbers]
            vectors = embedder.encode_document(written, show_progress=False)
            owners = [document_identity(None, rows[at]) or names[at] for at in numbers]
            chosen, metadata = [names[at] for at in numbers], [rows[at] for at in numbers]
            self.index.upsert_rows(chosen, written, vectors, metadata, owners, embedder.fingerprint)
        return list(names.values())

    def update_documents(self, ids: list[str], documents: list[Document]) -> None:
        """Give rows that exist another text and other metadata; refuse a row that does not."""
        if unknown := {*ids} - {*self.index.get(ids, include=[])["ids"]}:
            raise InvalidParameter(f"there is no row {min(unknown)!r:.80} to update; add_documents writes new ones")
        self.add_documents(documents, ids=ids)

    def ingest(self, documents: Iterable[Document]) -> WriteReport:
        """Write whole documents, as `Index.upsert` does; the index splits them into passages.

        Each needs an id or a `source` that identifies it across runs. Blank documents are left out, and named in a
        warning. Pages of a file are joined, as `join_pages` does. A passage's metadata have the id of its `document`,
        by which `delete` removes it.
        """
        check_kind("documents", documents, Iterable, "a list of LangChain's documents")
        joined = join_pages([documents] if isinstance(documents, Document) else list(documents))
        whole = with_text(joined, lambda document: document.page_content, display_name, "passage")
        return self.index.upsert(_whole(document, number) for number, document in enumerate(whole))

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Filter = None, where_document: Filter = None, **kwargs: Any
    ) -> Scored:
        """Find documents by vectors and keywords (BM25), with scores: higher is better.

        Args:
            query: Text of the query.
            k: Number of documents.
            filter: Chroma's condition on metadata.
            where_document: Chroma's condition on texts.
            **kwargs: `alpha`, `documents`, `fetch_k`, `rerank`, `rerank_from`, `rerank_seconds` of `Index.query`.
        """
        options = {"where_document": where_document, **kwargs}
        return [(_document(hit), hit.score) for hit in self._hits(query, k, filter, **options)]

    hybrid_search = Chroma.similarity_search  # type: ignore[assignment]

    def _similarity_search_with_relevance_scores(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        hits, chosen = self._hits(query, k, **kwargs), self.override_relevance_score_fn
        relevances = [hit.score if chosen is None else chosen(1 - hit.cosine) for hit in hits]
        return list(zip(map(_document, hits), relevances, strict=True))

    def similarity_search_with_vectors(  # type: ignore[override]
        self, query: str, k: int = 4, filter: Filter = None, **kwargs: Any
    ) -> list[tuple[Document, np.ndarray]]:
        """As `similarity_search`, with each document's vector, shape (dimension,)."""
        hits = self._hits(query, k, filter, **kwargs)
        got = self.index.get([hit.id for hit in hits], include=["embeddings"])
        vectors = dict(zip(got["ids"], got["embeddings"], strict=True))
        return [(_document(hit), np.asarray(vectors[hit.id])) for hit in hits if hit.id in vectors]  # not deleted since

    def max_marginal_relevance_search(  # type: ignore[override]
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, filter: Filter = None, **kwargs: Any
    ) -> list[Document]:
        """As `similarity_search`, for documents that differ, chosen among `fetch_k`; `lambda_mult` 1: by relevance."""
        options = {**kwargs, "mmr": True, "fetch_k": fetch_k, "lambda_mult": lambda_mult}
        return [_document(hit) for hit in self._hits(query, k, filter, **options)]

    def max_marginal_relevance_search_by_vector(self, embedding: Any, *given: Any, **kwargs: Any) -> list[Document]:
        """As `max_marginal_relevance_search`, for a vector."""
        return self.max_marginal_relevance_search(embedding, *given, **kwargs)

    def similarity_search_by_vector(self, embedding: Any, *given: Any, **kwargs: Any) -> list[Document]:
        """Find the documents nearest to a vector of `embeddings.embed_query`; a list has no fingerprint to check."""
        return self.similarity_search(embedding, *given, **kwargs)

    def similarity_search_by_vector_with_relevance_scores(self, embedding: Any, *given: Any, **kwargs: Any) -> Scored:
        """As `similarity_search_by_vector`, with scores."""
        return self.similarity_search_with_score(embedding, *given, **kwargs)

    def search(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Search as `search_type` says: one of LangChain's, or "hybrid", which is "similarity"."""
        return super().search(query, _TYPES.get(search_type, search_type), **kwargs)

    async def asearch(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """As `search`, in a thread."""
        return await super().asearch(query, _TYPES.get(search_type, search_type), **kwargs)

    def as_retriever(self, *, search_type: str = "similarity", **kwargs: Any) -> VectorStoreRetriever:
        """Make a retriever of LangChain's; `search_type` "hybrid" is "similarity"."""
        return super().as_retriever(search_type=_TYPES.get(search_type, search_type), **kwargs)

    def _hits(self, asked: Any, k: int, filter: Filter = None, **options: Any) -> list[Hit]:
        """Search by a text, or by a vector alone."""
        by_vector = isinstance(asked, Sequence | np.ndarray) and not isinstance(asked, str)
        refuse_unknown("EddyChroma", options, _OF_VECTORS if by_vector else _OF_TEXTS)
        if by_vector:
            return self.index.search(np.asarray(asked)[None], k, where=filter, **options)[0]
        options["alpha"] = self.alpha if options.get("alpha") is None else options["alpha"]
        return self.index.query(asked, k, where=filter, **options)

    def get(self, ids: str | list[str] | None = None, where: Filter = None, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Get rows by ids, conditions or all, as `Chroma.get` does, with the same `options`: a dictionary of lists."""
        options = {name: value for name, value in options.items() if value is not None}
        refuse_unknown("EddyChroma.get", options, ("include", "limit", "offset", "where_document"))
        got = self.index.get([ids] if isinstance(ids, str) else ids, where, **options)
        if got["metadatas"] is not None:
            got["metadatas"] = [_metadata(row or {}) for row in got["metadatas"]]
        return got

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:  # type: ignore[override]
        """Remove rows by ids, by `where` and `where_document`, or by both, and documents of `ingest` by their ids."""
        refuse_unknown("EddyChroma.delete", kwargs, ("where", "where_document"))
        if ids is None and not any(kwargs.values()):
            raise InvalidParameter("delete was given no ids and no where=, and would empty the index; name them")
        self.index.remove_rows([ids] if isinstance(ids, str) else ids, **kwargs)
        return True

    aadd_texts, aingest, adelete = threaded(add_texts), threaded(ingest), threaded(delete)
    _asimilarity_search_with_relevance_scores = threaded(_similarity_search_with_relevance_scores)

    def delete_collection(self) -> None:
        """Delete the index with all its rows; the next write begins a new one."""
        self.index.drop()

    reset_collection = delete_collection

    def add_images(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a language model embeds text alone, and only Chroma's cloud forks collections."""
        raise InvalidParameter("an index takes no images, and is not forked: add texts, or copy it with copy_database")

    fork = similarity_search_by_image = similarity_search_by_image_with_relevance_score = add_images


def _database(place: dict[str, Any]) -> str | ClientAPI:
    """Return a folder, a server's URL, or a client; in memory if none is named."""
    place = {name: value for name, value in place.items() if value is not None and value is not False}
    kinds = [name for name in _PLACES if name in place]
    if len(kinds) > 1 or "chroma_cloud_api_key" in kinds:
        named = " and ".join(f"{name}=" for name in kinds)
        raise InvalidParameter(f"give one database, not {named}; for Chroma's cloud, client=chromadb.CloudClient(...)")
    kind = kinds[0] if kinds else ""
    owner = f"EddyChroma with {kind}=" if kind else "EddyChroma in memory"
    refuse_unknown(owner, place, (kind, *_BESIDE[kind]) if kind else (*_PLACES, *_BESIDE[kind]))
    if not place.keys() - {"persist_directory", "client"}:
        return place[kind] if kind else memory_client()
    if kind == "host":
        place.setdefault("port", 443 if "ssl" in place else 8000)
        if place.keys() <= {"host", "port", "ssl"}:
            return f"{'https' if 'ssl' in place else 'http'}://{place['host']}:{place['port']}"
    place["settings"] = place.pop("client_settings", Settings(anonymized_telemetry=False))
    if kind == "persist_directory":
        return chromadb.PersistentClient(place.pop(kind), **place)
    return chromadb.HttpClient(**place) if kind == "host" else chromadb.Client(**place)


def _default_id(text: str, metadata: Mapping[str, Any]) -> str:
    return str(uuid.uuid5(_NAMESPACE, json.dumps([text, sorted(metadata.items())], default=repr)))


def _whole(document: Document, number: int) -> Whole:
    """Return a document of an index; one that could not be known in the next run is refused by its number."""
    if not (identity := document_id(document)):
        raise InvalidParameter(f"document {display_name(document, number)} has no id and no source: give it one")
    metadata = {key: value for key, value in passage_metadata(document.metadata).items() if value is not None}
    pages, left_out = Pages.of(document.metadata), json.loads(document.metadata.get(LEFT_OUT, "[]"))
    numbers = tuple(str(number + 1) for number in range(len(pages.starts)))
    labels = () if pages.page_labels == numbers else pages.page_labels
    return Whole(identity, document.page_content, metadata, pages.starts, labels, tuple(map(tuple, left_out)))


def _document(hit: Hit) -> Document:
    return Document(hit.text, id=hit.id, metadata=_metadata(hit.row))


def _metadata(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's metadata of a row, and a passage's document and place in it."""
    place = {name: row[name] for name in RESERVED if name in row} if row.get(DIGEST) else {}
    return {**({"document": row[DOCUMENT]} if row.get(DIGEST) else {}), **user_metadata(row), **place}
