"""`EddyChromaVectorStore`: an index of `chroma_eddy` as LlamaIndex's vector store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import chromadb
import numpy as np
from chromadb.config import Settings
from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr
from llama_index.core.instrumentation.span import active_span_id
from llama_index.core.schema import BaseNode, Document, ImageNode, IndexNode, MetadataMode, NodeRelationship, TextNode
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery, VectorStoreQueryResult
from llama_index.core.vector_stores.types import VectorStoreQueryMode as Mode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from chroma_eddy import ALPHA, RESERVED, Index, open_index, threaded, user_metadata
from eddy_embed.encoding.validation import check_kind, refuse_unknown
from eddy_embed.errors import EddyError, FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT, END, FINGERPRINT, START
from eddy_embed.utils.arrays import Doubles
from llama_index.embeddings.eddy.base import EddyEmbedding, nodes_with_text, resolve_embed_model

if TYPE_CHECKING:
    from typing_extensions import Self

    from eddy_embed import Embedder  # imports torch

_NODE_TYPE = "_node_type"  # LlamaIndex's metadata key of a node's class
_BY_KEYWORDS = (Mode.SPARSE, Mode.TEXT_SEARCH)
_MODES = (Mode.DEFAULT, Mode.MMR, Mode.HYBRID, *_BY_KEYWORDS)
_OF_INDEX = ("where_document", "rerank", "rerank_from", "rerank_seconds")  # options that are those of `Index.query`
_OF_MMR = ("mmr_threshold", "mmr_prefetch_k")
_PREFETCH_FACTOR = 4  # candidates of MMR as a multiple of k, as in LlamaIndex's own Chroma store
_MIN_COSINE = 0.99
"""Minimum cosine of two vectors of one text by one embedder: other texts in the batch change rounding."""


class EddyChromaVectorStore(BasePydanticVectorStore):
    """Stores nodes in the main collection of an index that knows its embedder, and searches them by hybrid search.

    Vectors of another embedder, in nodes and queries, are refused. Queries find documents that the index has split
    itself, too. An index in a folder keeps fitted post-processing, which the store's `embed_model` then has: pass that
    to `VectorStoreIndex` and to pipelines.

    Args:
        collection_name: Name of the index.
        embed_model: An `EddyEmbedding`, or its parameters as a dictionary; None for `Settings.embed_model`.
        persist_dir: Folder of the database; or:
        host: Host of a Chroma server, with `port`, `ssl` for https, and `headers`, which are not serialized.
        alpha: Weight of the vectors in queries that give none, from 0, keywords (BM25) alone, to 1, vectors alone;
            None: as in `Index.query`, with a warning where there are too many rows on a server for keyword search.
        timeout: Maximum time in seconds to wait while another process or thread writes.

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
    alpha: float | None = Field(default=None, ge=0, le=1)
    timeout: float = 60.0

    _index: Index = PrivateAttr()
    _given_model: EddyEmbedding = PrivateAttr()

    def __init__(
        self, collection_name: str, embed_model: EddyEmbedding | Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        if settings.get("persist_dir") is not None:
            settings["persist_dir"] = str(settings["persist_dir"])
        model = resolve_embed_model(embed_model, "an index is written to and searched with")
        self._configure({**settings, "collection_name": collection_name, "embed_model": model})
        self._given_model = model
        self._index = open_index(self._place(), collection_name, model.embedder, timeout=self.timeout)
        if self._index.embedder is not model.embedder:  # it is fitted as the index was
            self.embed_model = EddyEmbedding.from_embedder(self._index.embedder)

    def _configure(self, values: dict[str, Any]) -> None:
        refuse_unknown("EddyChromaVectorStore", values, type(self).model_fields)
        super().__init__(**values)

    @classmethod
    def from_params(
        cls, collection_name: str, embed_model: EddyEmbedding | Mapping[str, Any] | None = None, **settings: Any
    ) -> Self:
        """As the constructor, by the name that LlamaIndex's own Chroma store has."""
        return cls(collection_name, embed_model, **settings)

    @classmethod
    def from_index(cls, index: Index, *, alpha: float | None = None) -> Self:
        """Wrap an open index with an embedder; after `Index.reindex` with another one, wrap it again.

        Such a store cannot be copied to other processes.
        """
        check_kind("index", index, Index, "an index from chroma_eddy.open_index")
        self = cls.__new__(cls)
        folder, model = index.storage.lock.folder, EddyEmbedding.from_embedder(index.embedder)
        place = {"collection_name": index.name, "persist_dir": None if folder is None else str(folder)}
        self._configure({**place, "embed_model": model, "alpha": alpha})
        self._given_model, self._index = model, index
        return self

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises the class."""
        return "EddyChromaVectorStore"

    @property
    def client(self) -> chromadb.Collection:
        """Chroma's collection."""
        return self._index.collection

    @property
    def index(self) -> Index:
        """The index, for operations that LlamaIndex does not have."""
        return self._index

    @property
    def searches_by(self) -> str:
        """How queries without an `alpha` search: "hybrid", or "vectors" where a server has too many rows."""
        return self._index.searches_by

    # --- Rows

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes with their embeddings, in place of nodes of the same ids; return the ids of all.

        Blank nodes are left out, and named in a warning.

        Raises:
            FingerprintMismatch: A vector comes from another embedder.
            InvalidParameter: A node cannot be stored.
        """
        refuse_unknown("EddyChromaVectorStore.add", kwargs, ())
        embedder, written = self._index.embedder, nodes_with_text(nodes)
        if bare := [node.node_id for node in written if node.embedding is None]:
            raise InvalidParameter(
                f"node {bare[0]!r} has no embedding; add nodes through VectorStoreIndex or IngestionPipeline, which "
                "embed them"
            )
        _check_vectors(embedder, written)
        self._index.upsert_rows(
            [node.node_id for node in written],
            [node.get_content(metadata_mode=MetadataMode.NONE) for node in written],
            [node.get_embedding() for node in written],
            [_to_metadata(node) for node in written],
            [node.ref_doc_id or node.node_id for node in written],
            embedder.fingerprint,
        )
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Remove all nodes of a document, also of one that the index has split itself."""
        refuse_unknown("EddyChromaVectorStore.delete", delete_kwargs, ())
        check_kind("ref_doc_id", ref_doc_id, str, "a document's id")
        self._index.remove([ref_doc_id])
        self._index.remove_rows(where={DOCUMENT: ref_doc_id})

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Remove nodes by ids, by filters, or by both; InvalidParameter if there are neither.

        A document that the index has split itself goes whole, if all of its passages are among them; InvalidParameter
        if only some are.
        """
        refuse_unknown("EddyChromaVectorStore.delete_nodes", delete_kwargs, ())
        if node_ids is None and not (filters and filters.filters):
            raise InvalidParameter("delete_nodes was given neither node_ids nor filters; clear() takes out all")
        where, possible = to_where(filters)
        self._index.remove_rows(node_ids if possible else [], where)

    def clear(self) -> None:
        """Remove all nodes, and all documents that the index has split itself."""
        self._index.remove_rows()

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Get nodes by ids, by filters, by both, or all nodes."""
        where, possible = to_where(filters)
        got = self._index.get(node_ids if possible else [], where)
        return list(map(_to_node, got["ids"], got["metadatas"], got["documents"]))

    # --- Queries

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find the nodes that answer a query, best first.

        Args:
            query: A query in the mode "default", "hybrid" or "mmr", by vectors and keywords (BM25) together, weighed by
                its `alpha`, or else the store's; without a text it is answered by vectors alone. "hybrid" returns
                `hybrid_top_k` (or `similarity_top_k`) nodes out of `sparse_top_k` (or 100) candidates of each.
                "text_search" and "sparse" search by keywords alone.
            **kwargs: `where` and `where_document`, Chroma's own conditions; `rerank`, `rerank_from` and
                `rerank_seconds`, as for `Index.query`; `mmr_threshold` and `mmr_prefetch_k` in mode "mmr";
                `fingerprint` of the embedder of a query vector that has none.

        Raises:
            FingerprintMismatch: The query's vector comes from another embedder.
            InvalidParameter: The index does not support the query.
        """
        text = (query.query_str or "").strip()
        where, possible = to_where(query.filters, kwargs.get("where"))
        options = self._options(query, text, kwargs)
        vector, fingerprint = self._vector(query, kwargs.get("fingerprint"))
        (hits,) = self._index.search(
            vector,
            questions=[text] if text else None,
            fingerprint=fingerprint,
            ids=self._allowed_ids(query.node_ids) if possible else [],
            documents=query.doc_ids,
            where=where,
            **options,
        )
        nodes = [_to_node(hit.id, hit.row, hit.text) for hit in hits]
        return VectorStoreQueryResult(nodes, [hit.score for hit in hits], [hit.id for hit in hits])

    def _options(self, query: VectorStoreQuery, text: str, more: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of `Index.search`: the weight of the vectors, the number of hits, and how they are chosen."""
        mode, k = Mode(query.mode), query.similarity_top_k
        if mode not in _MODES:
            names = ", ".join(known.value for known in _MODES)
            raise InvalidParameter(f"EddyChromaVectorStore cannot be asked in mode {mode.value!r}; it has {names}")
        known = ("where", "fingerprint", *_OF_INDEX, *(_OF_MMR if mode == Mode.MMR else ()))
        refuse_unknown(f"EddyChromaVectorStore.query in mode {mode.value!r}", more, known)
        alpha = self.alpha if query.alpha is None else query.alpha
        options: dict[str, Any] = {name: more[name] for name in _OF_INDEX if name in more}
        options |= {"k": k, "alpha": alpha if text else None}
        if mode in _BY_KEYWORDS:
            options |= {"k": query.sparse_top_k or k, "alpha": 0.0}
        elif mode == Mode.HYBRID:
            options |= {"k": query.hybrid_top_k or k, "fetch_k": query.sparse_top_k}
            options["alpha"] = ALPHA if text and alpha is None else options["alpha"]
        elif mode == Mode.MMR:
            balance = more.get("mmr_threshold") if query.mmr_threshold is None else query.mmr_threshold
            options |= {"mmr": True, "fetch_k": more.get("mmr_prefetch_k", k * _PREFETCH_FACTOR)}
            options |= {} if balance is None else {"lambda_mult": balance}
        return options

    def _allowed_ids(self, node_ids: Sequence[str] | None) -> list[str] | None:
        """Return the only rows to search; None for all.

        A retriever of `VectorStoreIndex` always passes the ids of the nodes that LlamaIndex stores itself, which for a
        store that holds texts are none, or images and indices alone. Nobody asked for such a list: it is ignored.
        """
        if node_ids is not None and (active_span_id.get() or "").startswith("VectorIndexRetriever."):
            kinds = {row.get(_NODE_TYPE) for row in self._index.get(node_ids, include=["metadatas"])["metadatas"]}
            if not node_ids or (kinds and kinds <= {IndexNode.class_name(), ImageNode.class_name()}):
                return None
        return None if node_ids is None else list(node_ids)

    def _vector(self, query: VectorStoreQuery, fingerprint: str | None) -> tuple[Doubles, str]:
        """Return the query's vector, shape (dimension,), and its embedder's fingerprint, which the caller may know."""
        vector, embedder = query.query_embedding, self._index.embedder
        if vector is None:
            if query.query_str is None:
                raise InvalidParameter("the query has neither query_str nor query_embedding; get_nodes takes filters")
            return embedder.encode_query(query.query_str, show_progress=False).astype(np.float64), embedder.fingerprint
        made = fingerprint or getattr(vector, "fingerprint", None)
        if made is None:
            raise InvalidParameter(
                "the question's vector does not say what made it, so nobody knows whether it may be compared: give "
                "embed_model=store.embed_model to the index or retriever; or, for a vector of your own, "
                "vector_store_kwargs={'fingerprint': embedder.fingerprint}"
            )
        return np.asarray(vector, np.float64), str(made)

    async_add, adelete, adelete_nodes, aclear = (threaded(method) for method in (add, delete, delete_nodes, clear))
    aget_nodes, aquery = threaded(get_nodes, asyncio.to_thread), threaded(query, asyncio.to_thread)

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

    def _place(self) -> Any:
        if (self.persist_dir is None) == (self.host is None):
            raise InvalidParameter("give the database's place: persist_dir=, or host= and port= of a server")
        if self.persist_dir is not None:
            return self.persist_dir
        port = self.port or (443 if self.ssl else 8000)
        if self.headers is None:
            return f"{'https' if self.ssl else 'http'}://{self.host}:{port}"
        settings = Settings(anonymized_telemetry=False)
        return chromadb.HttpClient(str(self.host), port, ssl=self.ssl, headers=self.headers, settings=settings)


def _to_metadata(node: BaseNode) -> dict[str, Any]:
    """Return a row's metadata, from which `_to_node` restores the node."""
    row = node_to_metadata_dict(node, remove_text=True)
    # LlamaIndex would write None for NaN, which the index refuses.
    row.update({key: value for key, value in node.metadata.items() if isinstance(value, float)})
    places = {START: getattr(node, "start_char_idx", None), END: getattr(node, "end_char_idx", None)}
    row.update({key: offset for key, offset in places.items() if offset is not None})
    return {key: value for key, value in row.items() if key not in _DOCUMENT_KEYS}


def _to_node(id_: str, stored: Mapping[str, Any], text: str) -> BaseNode:
    """Convert a row with its text to a node."""
    if all(key in stored for key in ("_node_content", _NODE_TYPE)):
        return metadata_dict_to_node(dict(stored), text=text)
    metadata = user_metadata(stored)
    document = Document(id_=str(stored[DOCUMENT]), metadata=dict(metadata)).as_related_node_info()
    places = {key: stored[key] for key in RESERVED if key in stored and key not in (START, END)}
    return TextNode(
        id_=id_,
        text=text,
        metadata={**metadata, **places},
        start_char_idx=stored.get(START),
        end_char_idx=stored.get(END),
        relationships={NodeRelationship.SOURCE: document},
    )


def _check_vectors(embedder: Embedder, nodes: Sequence[BaseNode]) -> None:
    """Refuse vectors of another embedder than the index's.

    Nodes with a fingerprint are compared by it; of the others, the first is embedded again, with its metadata as
    LlamaIndex embeds it, and without.
    """
    made_by = [node.metadata.get(FINGERPRINT) or getattr(node.embedding, "fingerprint", None) for node in nodes]
    for node, made in zip(nodes, made_by, strict=True):
        if made not in (None, embedder.fingerprint):
            raise FingerprintMismatch(
                f"node {node.node_id!r} was embedded by another embedder than the index's, `{embedder.method}` on "
                f"`{embedder.model_name}`.\nIts fingerprint: {made}, the index's: {embedder.fingerprint}; embed it "
                "with store.embed_model"
            )
    if None in made_by:
        node = nodes[made_by.index(None)]
        vector = np.asarray(node.embedding, np.float64)
        for mode in (MetadataMode.EMBED, MetadataMode.NONE, MetadataMode.ALL):
            made_here = embedder.encode_document(node.get_content(metadata_mode=mode), show_progress=False)
            least = _MIN_COSINE * float(np.linalg.norm(vector) * np.linalg.norm(made_here))
            if vector.shape == made_here.shape and vector @ made_here >= least > 0:
                return
        raise FingerprintMismatch(
            f"the vector of node {node.node_id!r} is not the one that the index's embedder, {embedder.model_name!r} "
            f"with {str(embedder.method)!r}, makes of its text: embed the nodes with store.embed_model"
        )


# --- LlamaIndex's metadata filters as Chroma's conditions

_DOCUMENT_KEYS = ("document_id", "doc_id", "ref_doc_id")
"""Metadata keys of a node's document in LlamaIndex; the index has a key of its own for it."""
_Condition = dict[str, Any] | bool
"""A condition; True if every row meets it, False if none does: Chroma cannot express these two."""
_OPERATORS = {
    **{FilterOperator.EQ: "$eq", FilterOperator.NE: "$ne", FilterOperator.IN: "$in", FilterOperator.NIN: "$nin"},
    **{FilterOperator.GT: "$gt", FilterOperator.GTE: "$gte", FilterOperator.LT: "$lt", FilterOperator.LTE: "$lte"},
    **{FilterOperator.CONTAINS: "$contains", FilterOperator.ANY: "$or", FilterOperator.ALL: "$and"},
}
_OF_LISTS = ("$in", "$nin", "$or", "$and")
_OPPOSITE = {"$eq": "$ne", "$ne": "$eq", "$in": "$nin", "$nin": "$in"}
"""A row without the entry meets $ne and $nin, as the negation of $eq and $in requires."""


def to_where(filters: MetadataFilters | None, where: Any = None) -> tuple[dict[str, Any] | None, bool]:
    """Join filters with one of Chroma's conditions: Chroma's condition, or None; and whether any row can meet it.

    Raises:
        InvalidParameter: Chroma does not support a filter.
    """
    check_kind("filters", filters, MetadataFilters | None, "LlamaIndex's MetadataFilters, or None")
    joined = _joined("$and", [filters is None or _group(filters, negated=False), where or True])
    return (None, joined) if isinstance(joined, bool) else (joined, True)


def _joined(operator: str, conditions: Sequence[_Condition]) -> _Condition:
    """Join one or more conditions by "$and" or "$or"."""
    decisive = operator == "$or"  # one such condition decides the whole
    if any(condition is decisive for condition in conditions):
        return decisive
    rest = [condition for condition in conditions if not isinstance(condition, bool)]
    if not rest:
        return not decisive
    return {operator: rest} if len(rest) > 1 else rest[0]


def _group(filters: MetadataFilters, *, negated: bool) -> _Condition:
    if not filters.filters:
        return True
    condition = FilterCondition(filters.condition or FilterCondition.AND)
    is_not = condition == FilterCondition.NOT  # no filter is met
    inside, either = negated != is_not, negated if is_not else (condition == FilterCondition.OR) != negated
    conditions = [
        _group(part, negated=inside) if isinstance(part, MetadataFilters) else _single(part, negated=inside)
        for part in filters.filters
    ]
    return _joined("$or" if either else "$and", conditions)


def _single(part: MetadataFilter, *, negated: bool) -> _Condition:
    """Return the condition of one filter; `Index` refuses a value of a kind that Chroma does not take."""
    wanted, value = FilterOperator(part.operator or FilterOperator.EQ), part.value
    key = DOCUMENT if part.key in _DOCUMENT_KEYS else part.key
    operator = _OPERATORS.get(wanted, "")
    operator = _OPPOSITE.get(operator, "") if negated else operator
    if not operator or (operator in _OF_LISTS and not isinstance(value, list)):
        raise InvalidParameter(
            f"the filter {part.key!r} {wanted.value} {value!r:.60}{' under not' * negated} cannot be asked: Chroma "
            "compares whole values that a row has, and lists by their members; for words in texts, give "
            "vector_store_kwargs={'where_document': {'$contains': ...}}"
        )
    if operator in _OF_LISTS and not value:
        return operator in ("$nin", "$and")
    if operator in ("$and", "$or"):
        return _joined(operator, [{key: {"$contains": item}} for item in value])  # type: ignore[union-attr]
    return {key: {operator: value}}
