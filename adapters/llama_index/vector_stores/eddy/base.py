"""`EddyChromaVectorStore`: an index of `chroma_eddy` as LlamaIndex's vector store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import chromadb
from chromadb.api import ClientAPI
from chromadb.api.models.Collection import Collection
from chromadb.config import Settings
from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)

from chroma_eddy import PIECE, Index, Row, open_index
from eddy_embed.encoding.validation import check_kind, refuse_unknown
from eddy_embed.errors import EddyError, InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT
from eddy_embed.integrations.shared import in_worker
from llama_index.embeddings.eddy.base import EddyEmbedding, nodes_with_text, resolve_embed_model
from llama_index.vector_stores.eddy.filters import to_condition, to_where
from llama_index.vector_stores.eddy.nodes import to_node, to_piece
from llama_index.vector_stores.eddy.query_translation import (
    check_vectors,
    query_vector,
    requested_node_ids,
    translate_query,
)

if TYPE_CHECKING:
    from typing_extensions import Self

_HINTS = {
    "chroma_collection": "name it, collection_name=..., so that the store can make it, in cosine space and with what "
    "makes its vectors",
    "collection_kwargs": "collections are made in cosine space, with what makes their vectors",
}


class EddyChromaVectorStore(BasePydanticVectorStore):
    """Stores nodes in the main collection of an index that knows its embedder.

    Adding a node of a known id replaces it. The store writes nodes in batches that the database accepts, under the
    index's lock. Scores are cosines, or, of hybrid queries, sums for meaning and words. The store refuses vectors of
    another embedder in nodes and queries. Queries find documents that the index has split itself, too.

    An index in a folder keeps fitted post-processing, and is opened again by the method's name alone; the store's
    `embed_model` has it: pass that to `VectorStoreIndex` and to pipelines.

    Args:
        collection_name: Name of the index.
        embed_model: An `EddyEmbedding`, or its parameters as a dictionary; None for `Settings.embed_model`.
        persist_dir: Folder of the database; or:
        host: Host of a Chroma server.
        port: Port of the server.
        ssl: Whether to use https.
        headers: Headers of each request; not serialized.
        timeout: Maximum time in seconds to wait while another process or thread writes.
        **others: Refused, with what to do instead.

    Raises:
        InvalidParameter: An argument is wrong, or there is neither folder nor host.
        FingerprintMismatch: The index belongs to another embedder; the message compares both, field by field.
        ForeignCollection: Another program made a collection of that name.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    stores_text: bool = True
    is_embedding_query: bool = True
    collection_name: str
    embed_model: EddyEmbedding
    persist_dir: str | None = None
    host: str | None = None
    port: int | None = None
    ssl: bool = False
    headers: dict[str, str] | None = Field(default=None, exclude=True)
    timeout: float = 60.0

    _index: Index = PrivateAttr()
    _given_model: EddyEmbedding = PrivateAttr()

    def __init__(
        self,
        collection_name: str,
        embed_model: EddyEmbedding | Mapping[str, Any] | None = None,
        *,
        persist_dir: str | None = None,
        host: str | None = None,
        port: int | str | None = None,
        ssl: bool = False,
        headers: dict[str, str] | None = None,
        timeout: float = 60.0,
        **others: Any,
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "others", "__class__")}
        # A serialised store names the base class's fields, too.
        others = {k: v for k, v in others.items() if k not in ("stores_text", "is_embedding_query")}
        model = resolve_embed_model(embed_model, "an index is written to and searched with")
        paths = {
            "persist_dir": None if persist_dir is None else str(persist_dir),
            "port": None if port is None else int(port),
        }
        self._configure({**given, **others, **paths, "embed_model": model})
        self._given_model = model
        self._index = open_index(self._place(), collection_name, model.embedder, timeout=timeout)
        if self._index.embedder is not model.embedder:  # it is fitted as the index was
            self.embed_model = EddyEmbedding.from_embedder(self._index.embedder)

    def _configure(self, values: dict[str, Any]) -> None:
        refuse_unknown("EddyChromaVectorStore", values, type(self).model_fields, _HINTS)
        super().__init__(**values)

    @classmethod
    def from_params(
        cls,
        collection_name: str,
        embed_model: EddyEmbedding | Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Self:
        """As the constructor, by the name that LlamaIndex's own Chroma store has."""
        return cls(collection_name, embed_model, **settings)

    @classmethod
    def from_index(cls, index: Index) -> Self:
        """Wrap an open index with an embedder; after `Index.reindex` with another one, wrap it again.

        Such a store cannot be copied to other processes.
        """
        check_kind("index", index, Index, "an index from chroma_eddy.open_index")
        self = cls.__new__(cls)
        folder = index.store.lock.folder
        own = {"collection_name": index.name, "embed_model": EddyEmbedding.from_embedder(index.embedder)}
        self._configure({**own, "persist_dir": None if folder is None else str(folder)})
        self._given_model, self._index = self.embed_model, index
        return self

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises the class."""
        return "EddyChromaVectorStore"

    @property
    def client(self) -> Collection:
        """Chroma's collection."""
        return self._index.collection

    @property
    def index(self) -> Index:
        """The index, for operations that LlamaIndex does not have."""
        return self._index

    # --- Writing

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes with their embeddings, in place of nodes of the same ids; return the ids of all.

        Blank nodes are left out, and named in a warning.

        Raises:
            FingerprintMismatch: A vector comes from another embedder.
            InvalidParameter: A node cannot be stored.
        """
        refuse_unknown("EddyChromaVectorStore.add", kwargs, ())
        kept = nodes_with_text(nodes)
        given = [to_piece(node) for node in kept]
        if given:
            embedder = self._index.embedder
            check_vectors(embedder, kept)
            self._index.put_pieces(given, embedder.fingerprint)
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Remove all nodes of a document, also of one that the index has split itself."""
        refuse_unknown("EddyChromaVectorStore.delete", delete_kwargs, ())
        check_kind("ref_doc_id", ref_doc_id, str, "a document's id")
        if self._index.exists:
            self._index.remove([ref_doc_id])
            self._index.remove_pieces(where={DOCUMENT: ref_doc_id})

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Remove nodes by ids, by filters, or by both.

        Raises:
            InvalidParameter: There are neither ids nor filters; or a node is a passage of a document that the index has
                split itself, which can only be removed whole.
        """
        refuse_unknown("EddyChromaVectorStore.delete_nodes", delete_kwargs, ())
        if node_ids is None and filters is None:
            raise InvalidParameter("delete_nodes was given neither node_ids nor filters; clear() takes out all")
        rows = self._rows(node_ids, filters)
        whole = {str(row.metadata[DOCUMENT]) for row in rows if PIECE not in row.metadata}
        if whole:
            raise InvalidParameter(
                f"{len(whole)} documents were cut by the index, such as {min(whole)!r:.80}, and lose no single "
                "passages: take them out whole, with delete(ref_doc_id)"
            )
        self._index.remove_pieces(ids=[row.id for row in rows])

    def clear(self) -> None:
        """Remove all nodes, and all documents that the index has split itself."""
        if self._index.exists:
            with self._index.writing():
                self._index.remove(list(self._index.entries()))
                self._index.remove_pieces()

    # --- Reading

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Get nodes by ids, by filters, by both, or all nodes."""
        return [to_node(row) for row in self._rows(node_ids, filters, texts=True)]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find the nodes nearest to a query.

        Args:
            query: A query in the mode "default", "mmr", "hybrid", "text_search" or "sparse". With "hybrid", the result
                is the best `hybrid_top_k` (or `similarity_top_k`) of the first `sparse_top_k` (or 100) by meaning and
                by BM25; `alpha` weighs meaning, from 0 to 1. "text_search" and "sparse" find by words alone.
            **kwargs: `where` and `where_document`, Chroma's own conditions; `prefilter`, the number of documents to
                search within; `rerank`, `rerank_from` and `rerank_seconds`, as for `Index.query`; `mmr_threshold`,
                `mmr_prefetch_factor`, `mmr_prefetch_k`; `fingerprint` of the embedder of a query vector that has none.

        Raises:
            FingerprintMismatch: The query's vector comes from another embedder.
            InvalidParameter: The index does not support the query.
        """
        options, possible = translate_query(query, kwargs)
        vector, fingerprint = query_vector(self._index, query, kwargs.get("fingerprint"))
        options.update(questions=[query.query_str or ""], ids=requested_node_ids(self._index, query.node_ids))
        hits = self._index.search(vector, fingerprint=fingerprint, **options)[0] if possible else []
        return VectorStoreQueryResult(
            nodes=[to_node(Row(hit.id, dict(hit.row), hit.text)) for hit in hits],
            similarities=[hit.score for hit in hits],
            ids=[hit.id for hit in hits],
        )

    def _rows(self, node_ids: list[str] | None, filters: MetadataFilters | None, *, texts: bool = False) -> list[Row]:
        where, possible = to_where(to_condition(filters), None)
        return self._index.rows(node_ids, where, texts=texts) if possible else []

    # --- The same in threads

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """As `add`, in a thread."""
        return await in_worker(partial(self.add, nodes, **kwargs))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """As `delete`, in a thread."""
        await in_worker(partial(self.delete, ref_doc_id, **delete_kwargs))

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """As `delete_nodes`, in a thread."""
        await in_worker(partial(self.delete_nodes, node_ids, filters, **delete_kwargs))

    async def aclear(self) -> None:
        """As `clear`, in a thread."""
        await in_worker(self.clear)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """As `get_nodes`, in a thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """As `query`, in a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    # --- Serialization

    def __getstate__(self) -> dict[str, Any]:
        if self.persist_dir is None and self.host is None:
            raise EddyError(
                f"the store of index {self.collection_name!r} was made of an open client, which cannot be copied to "
                "another process: make it with persist_dir=, or with host= and port="
            )
        return {name: getattr(self, name) for name in type(self).model_fields} | {"embed_model": self._given_model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _place(self) -> str | ClientAPI:
        if (self.persist_dir is None) == (self.host is None):
            raise InvalidParameter("give the database's place: persist_dir=, or host= and port= of a server")
        if self.persist_dir is not None:
            return self.persist_dir
        scheme = "https" if self.ssl else "http"
        port = self.port or (443 if self.ssl else 8000)
        if self.headers is None:
            return f"{scheme}://{self.host}:{port}"
        settings = Settings(anonymized_telemetry=False)
        return chromadb.HttpClient(str(self.host), port, ssl=self.ssl, headers=self.headers, settings=settings)
