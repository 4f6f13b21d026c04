"""Translate LlamaIndex's queries for the index, and check that vectors come from the index's embedder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.schema import BaseNode, ImageNode, IndexNode, MetadataMode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from chroma_eddy import ALPHA, Index
from eddy_embed.encoding.validation import refuse_unknown
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import FINGERPRINT
from eddy_embed.utils.arrays import Doubles
from llama_index.vector_stores.eddy.filters import to_condition, to_where
from llama_index.vector_stores.eddy.nodes import NODE_TYPE

if TYPE_CHECKING:
    from eddy_embed import Embedder  # imports torch

_MODES = {
    VectorStoreQueryMode.DEFAULT: "",
    VectorStoreQueryMode.MMR: "",
    VectorStoreQueryMode.HYBRID: "",
    VectorStoreQueryMode.SPARSE: "",
    VectorStoreQueryMode.TEXT_SEARCH: "",
    VectorStoreQueryMode.SEMANTIC_HYBRID: "it is a service of another database; 'hybrid' joins words and meaning",
}
_CLASSIFIER_MODES = "LlamaIndex's own SimpleVectorStore has the modes that train a classifier for each question"
_MMR_OPTIONS = ("mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k")
_RERANKING = ("rerank", "rerank_from", "rerank_seconds")
_OPTIONS = ("where", "where_document", "prefilter", "fingerprint", *_MMR_OPTIONS, *_RERANKING)
_PREFETCH_FACTOR = 4.0
"""Candidates of MMR as a multiple of k, as in LlamaIndex's own Chroma store."""
_MIN_COSINE = 0.99
"""Minimum cosine of two vectors of one text by one embedder: other texts in the batch change rounding."""


def translate_query(query: VectorStoreQuery, more: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Translate a query with its `vector_store_kwargs` to options of `Index.search`; whether rows can meet them."""
    refuse_unknown("EddyChromaVectorStore.query", more, _OPTIONS)
    mode = VectorStoreQueryMode(query.mode)
    if reason := _MODES.get(mode, _CLASSIFIER_MODES):
        raise InvalidParameter(f"mode {mode.value!r} cannot be asked of EddyChromaVectorStore: {reason}")
    by_words = mode in (VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH)
    hybrid, mmr = by_words or mode == VectorStoreQueryMode.HYBRID, mode == VectorStoreQueryMode.MMR
    if not mmr and (given := [name for name in _MMR_OPTIONS if more.get(name) is not None]):
        raise InvalidParameter(f"{given[0]}= belongs to mode 'mmr', and the mode is {mode.value!r}")
    where, possible = to_where(to_condition(query.filters), more.get("where"))
    k = query.similarity_top_k
    thresholds = [value for value in (query.mmr_threshold, more.get("mmr_threshold"), 0.5) if value is not None]
    options = dict[str, Any](
        k=(query.sparse_top_k or k) if by_words else (query.hybrid_top_k or k) if hybrid else k,
        where=where,
        where_document=more.get("where_document"),
        documents=query.doc_ids or None,
        prefilter=more.get("prefilter"),
        hybrid=hybrid,
        alpha=0 if by_words else query.alpha if hybrid and query.alpha is not None else ALPHA,
        mmr=mmr,
        fetch_k=_mmr_candidates(k, more) if mmr else query.sparse_top_k if hybrid else None,
        lambda_mult=float(thresholds[0]),
        **{name: more[name] for name in _RERANKING if name in more},
    )
    return options, possible


def requested_node_ids(index: Index, node_ids: Sequence[str] | None) -> list[str] | None:
    """Return the only nodes to search, or None for all.

    A retriever of `VectorStoreIndex` passes the ids of the nodes that LlamaIndex stores itself; for a store that holds
    texts these are images and indices only. Nobody asked for such a list, so it is ignored.
    """
    if not node_ids:
        return None
    kept = {kind.class_name() for kind in (IndexNode, ImageNode)}
    kinds = {row.metadata.get(NODE_TYPE) for row in index.rows(list(node_ids))}
    return None if kinds and kinds <= kept else list(node_ids)


def query_vector(index: Index, query: VectorStoreQuery, fingerprint: str | None) -> tuple[Doubles, str]:
    """Return the query's vector, shape (dimension,), and its embedder's fingerprint, which the caller may know."""
    given = query.query_embedding
    if given is None:
        if query.query_str is None:
            raise InvalidParameter(
                "the query has neither query_str nor query_embedding; get_nodes finds by filters alone"
            )
        embedder = index.embedder
        vector = embedder.encode_query(query.query_str, show_progress=False)
        return np.asarray(vector, np.float64), embedder.fingerprint
    made = fingerprint or getattr(given, "fingerprint", None)
    if made is None:
        raise InvalidParameter(
            "the question's vector does not say what made it, so nobody knows whether it may be compared: give "
            "embed_model=store.embed_model to the index or retriever; or, for a vector of your own, "
            "vector_store_kwargs={'fingerprint': embedder.fingerprint}"
        )
    return np.asarray(given, np.float64), str(made)


def check_vectors(embedder: Embedder, nodes: Sequence[BaseNode]) -> None:
    """Refuse vectors of another embedder than the index's.

    Nodes with a fingerprint are compared by it; of the others, the first is embedded again.
    """
    unmarked = None
    for node in nodes:
        made = node.metadata.get(FINGERPRINT) or getattr(node.embedding, "fingerprint", None)
        if made is None:
            unmarked = unmarked or node
        elif made != embedder.fingerprint:
            raise FingerprintMismatch(
                f"node {node.node_id!r} was embedded by another embedder than the index's, `{embedder.method}` on "
                f"`{embedder.model_name}`.\nIts fingerprint: {made}, the index's: {embedder.fingerprint}; embed it "
                "with store.embed_model"
            )
    if unmarked is None:
        return
    text = unmarked.get_content(metadata_mode=MetadataMode.EMBED)
    own = np.asarray(embedder.encode_document(text, show_progress=False), np.float64)
    vector = np.asarray(unmarked.embedding, np.float64)
    if vector.shape != own.shape or not vector @ own >= _MIN_COSINE * np.linalg.norm(vector) * np.linalg.norm(own):
        raise FingerprintMismatch(
            f"the vector of node {unmarked.node_id!r} is not the one that the index's embedder, "
            f"{embedder.model_name!r} with {str(embedder.method)!r}, makes of its text: embed the nodes with "
            "store.embed_model"
        )


def _mmr_candidates(k: int, more: Mapping[str, Any]) -> int:
    factor, count = more.get("mmr_prefetch_factor"), more.get("mmr_prefetch_k")
    if factor is not None and count is not None:
        raise InvalidParameter("mmr_prefetch_factor and mmr_prefetch_k say the same in two ways; give one of them")
    return max(k, int(count) if count is not None else int(k * (_PREFETCH_FACTOR if factor is None else factor)))
