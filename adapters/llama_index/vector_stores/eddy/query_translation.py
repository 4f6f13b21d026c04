"""What LlamaIndex asks, as the index understands it, and whether a vector was made as the index's own were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llama_index.core.schema import BaseNode, ImageNode, IndexNode, MetadataMode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from chroma_eddy.names import MAIN
from chroma_eddy.rows import FRAMEWORKS
from chroma_eddy.searching import Wanted
from eddy_embed.errors import FingerprintMismatch, InvalidParameter, InvalidText
from eddy_embed.parameters import refuse_unknown
from llama_index.embeddings.eddy import vector_metadata
from llama_index.vector_stores.eddy.filters import as_where, condition_of

if TYPE_CHECKING:
    from chroma_eddy import Index
    from eddy_embed import Embedder

    Doubles = np.ndarray[Any, np.dtype[np.float64]]

_WORDS = "words alone are searched by LlamaIndex's BM25Retriever; 'hybrid' joins them to meaning"
_MODES = {
    VectorStoreQueryMode.DEFAULT: "",
    VectorStoreQueryMode.MMR: "",
    VectorStoreQueryMode.HYBRID: "",
    VectorStoreQueryMode.SPARSE: _WORDS,
    VectorStoreQueryMode.TEXT_SEARCH: _WORDS,
    VectorStoreQueryMode.SEMANTIC_HYBRID: "it is a service of another database; 'hybrid' joins words and meaning",
}
_LEARNERS = "LlamaIndex's own SimpleVectorStore has the modes that train a classifier for each question"
_MMR = ("mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k")
_KNOWN = ("where", "where_document", "prefilter", "fingerprint", *_MMR)
_PREFETCH = 4.0
"""How many times as many nodes MMR looks at, as in LlamaIndex's own Chroma store."""
_SAME = 0.99
"""Cosine of two vectors of one text, at least, when one embedder made both: company changes them by rounding."""


def wanted_of(query: VectorStoreQuery, more: Mapping[str, Any]) -> tuple[Wanted, bool]:
    """What is wanted of the index, and whether any row can be meant.

    Args:
        query: LlamaIndex's.
        more: `vector_store_kwargs`.

    Raises:
        InvalidParameter: The index cannot do what is asked.
    """
    refuse_unknown("EddyChromaVectorStore.query", more, _KNOWN)
    mode = VectorStoreQueryMode(query.mode)
    if reason := _MODES.get(mode, _LEARNERS):
        raise InvalidParameter(f"mode {mode.value!r} cannot be asked of EddyChromaVectorStore: {reason}")
    hybrid, mmr = mode == VectorStoreQueryMode.HYBRID, mode == VectorStoreQueryMode.MMR
    if query.alpha is not None and hybrid:
        raise InvalidParameter(
            f"alpha={query.alpha!r} weighs scores, and hybrid queries fuse ranks, by meaning and by BM25, which weigh "
            "the same; leave it out"
        )
    if not mmr and (given := [name for name in _MMR if more.get(name) is not None]):
        raise InvalidParameter(f"{given[0]}= belongs to mode 'mmr', and the mode is {mode.value!r}")
    where, possible = as_where(condition_of(query.filters), more.get("where"))
    k = query.similarity_top_k
    return (
        Wanted(
            k=(query.hybrid_top_k or k) if hybrid else k,
            where=where,
            where_document=more.get("where_document"),
            documents=query.doc_ids or None,
            prefilter=more.get("prefilter"),
            hybrid=hybrid,
            mmr=mmr,
            fetch_k=_looked_at(k, more) if mmr else query.sparse_top_k if hybrid else None,
            lambda_mult=_threshold(query, more),
        ),
        possible,
    )


def chosen_nodes(index: Index, node_ids: Sequence[str] | None) -> list[str] | None:
    """The only nodes to look at; None: all.

    A retriever of `VectorStoreIndex` hands on the nodes that LlamaIndex keeps itself, which, of a store that holds
    texts, are those of images and indices alone: this list is nobody's wish.
    """
    if not node_ids or not index.exists:
        return None
    kept = {kind.class_name() for kind in (IndexNode, ImageNode)}
    rows = index.told(lambda _: index.store.get(MAIN, ids=list(node_ids), metadatas=True)).metadatas
    kinds = {row.get(FRAMEWORKS[1]) for row in rows}
    return None if kinds and kinds <= kept else list(node_ids)


def question_of(index: Index, query: VectorStoreQuery, fingerprint: str | None) -> tuple[Doubles, str]:
    """The question's vector, and the fingerprint of what made it.

    Args:
        index: Where it is asked.
        query: LlamaIndex's.
        fingerprint: What made the vector, if the caller says so.

    Raises:
        InvalidParameter: There is neither a question nor a vector, or nobody knows what made the vector.
    """
    given = query.query_embedding
    if given is None:
        if query.query_str is None:
            raise InvalidParameter(
                "the query has neither query_str nor query_embedding; get_nodes finds by filters alone"
            )
        embedder = index.current()
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


def checked_vectors(embedder: Embedder, nodes: Sequence[BaseNode]) -> None:
    """Refuse vectors of another embedder.

    Some nodes say what made theirs; of those that do not, the first is embedded again and compared.

    Args:
        embedder: The index's.
        nodes: Each with its vector.

    Raises:
        FingerprintMismatch: A vector was made otherwise.
    """
    silent = None
    for node in nodes:
        made = node.metadata.get(vector_metadata.FINGERPRINT) or getattr(node.embedding, "fingerprint", None)
        if made is None:
            silent = silent or node
        elif made != embedder.fingerprint:
            raise FingerprintMismatch(
                f"the vector of node {node.node_id!r} was made by {made}, and those of the index are made by "
                f"{embedder.fingerprint}: embed it with store.embed_model"
            )
    if silent is None:
        return
    text = silent.get_content(metadata_mode=MetadataMode.EMBED)
    if not text.strip():
        raise InvalidText(f"node {silent.node_id!r} has no text, so nobody knows what made its vector; leave it out")
    own = np.asarray(embedder.encode_document(text, show_progress=False), np.float64)
    vector = np.asarray(silent.embedding, np.float64)
    if vector.shape != own.shape or not vector @ own >= _SAME * np.linalg.norm(vector) * np.linalg.norm(own):
        raise FingerprintMismatch(
            f"the vector of node {silent.node_id!r} is not the one that the index's embedder, {embedder.model_name!r} "
            f"with {str(embedder.method)!r}, makes of its text: embed the nodes with store.embed_model"
        )


def _threshold(query: VectorStoreQuery, more: Mapping[str, Any]) -> float:
    given = [value for value in (query.mmr_threshold, more.get("mmr_threshold")) if value is not None]
    return float(given[0]) if given else 0.5


def _looked_at(k: int, more: Mapping[str, Any]) -> int:
    factor, count = more.get("mmr_prefetch_factor"), more.get("mmr_prefetch_k")
    if factor is not None and count is not None:
        raise InvalidParameter("mmr_prefetch_factor and mmr_prefetch_k say the same in two ways; give one of them")
    return max(k, int(count) if count is not None else int(k * (_PREFETCH if factor is None else factor)))
