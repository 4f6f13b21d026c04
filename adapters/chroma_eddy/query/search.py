"""Search: nearest vectors under filters, optionally fused with BM25, diversified, and with highlighted sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.fusion import Fusion
from chroma_eddy.query.highlights import add_highlights, sentence_hits
from chroma_eddy.query.hits import Candidates, read_hits
from chroma_eddy.query.options import Filter, Query, conjunction, nothing_allowed
from chroma_eddy.query.ranking import mmr_order
from chroma_eddy.query.reranking import reranked
from chroma_eddy.rows.schema import DIGEST
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, MAIN
from chroma_eddy.storage.pages import Rows
from chroma_eddy.types import RESERVED, Hit
from chroma_eddy.words.operators import Asked
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT
from eddy_embed.utils.arrays import Doubles, unit

_PASSAGES_PER_SENTENCE = 4
"""Passages that are looked through for each sentence that is asked for."""


def search(
    index: IndexCore, vectors: Doubles, questions: Sequence[str] | None, query: Query, fingerprint: str | None
) -> list[list[Hit]]:
    """Find each question's hits, best first.

    The vectors have the shape (questions, dimension), and come from the embedder of this fingerprint; None: from the
    index's own. The questions' texts are for `hybrid` alone.

    Raises:
        FingerprintMismatch: Another embedder made the index's vectors.
        InvalidParameter: The index cannot answer such a query, or a vector has another width, or NaN or infinity.
    """
    query.check()
    if vectors.shape[-1] != (width := index.dimension or vectors.shape[-1]) or not np.isfinite(vectors).all():
        raise InvalidParameter(
            f"vectors of questions have the shape {vectors.shape}, or hold NaN or infinity; index {index.name!r} takes "
            f"finite ones, {width} wide, of its own embedder"
        )
    texts = questions or [""] * len(vectors)

    def ask() -> list[list[Hit]]:
        if fingerprint not in (None, index.settings.fingerprint):
            raise FingerprintMismatch(
                f"The questions to index {index.name!r} were embedded by another embedder than its documents.\n"
                f"Fingerprint of the index: {index.settings.fingerprint}, of the questions: {fingerprint}; embed the "
                "questions again, with index.embedder"
            )
        if index.was_absent and not index.exists:
            return [[] for _ in vectors]
        chosen = query.resolved(questions is not None and index.words.on_disk)
        if (chosen.unit == "document" or chosen.prefilter is not None) and index.holds_pieces:
            raise InvalidParameter(
                f"index {index.name!r} holds pieces that a framework has cut, of which there are no whole documents: "
                "search passages, without prefilter"
            )
        if chosen.rerank is not None:
            chosen = chosen.first_stage
        return [_search_one(index, vector, text, chosen) for vector, text in zip(vectors, texts, strict=True)]

    found = index.read(ask)
    if query.rerank is None:
        return found
    # Not within `read`, which may keep writers waiting.
    found = [reranked(text, hits, query) for text, hits in zip(texts, found, strict=True)]
    if not query.sentences:
        return found

    def mark() -> list[list[Hit]]:
        chosen = query.resolved(questions is not None and index.words.on_disk)
        fusions = [Fusion(index, *each, chosen) if chosen.hybrid else None for each in zip(vectors, texts, strict=True)]
        return [_with_sentences(index, *each) for each in zip(vectors, found, fusions, strict=True)]

    return index.read(mark)


def _search_one(index: IndexCore, vector: Doubles, question: str, query: Query) -> list[Hit]:
    """Find one question's hits, all of versions that their documents' rows name."""
    if query.unit == "sentence":
        passages = replace(query, unit="passage", k=_PASSAGES_PER_SENTENCE * query.chosen_from, mmr=False)
        hits, vectors = sentence_hits(index, vector, _search_one(index, vector, question, passages), query.chosen_from)
        if not (query.mmr and hits):
            return hits
        similarity = np.array([hit.cosine for hit in hits])
        return [hits[at] for at in mmr_order(similarity, unit(vectors), query.k, query.lambda_mult)]
    if query.hybrid:
        texts = [*([query.where_document] if query.where_document else []), *Asked.of(question).conditions]
        query = replace(query, where_document=conjunction(texts))
    filters = [*_row_filters(index, query), *_document_filter(index, vector, query)]
    if nothing_allowed(query, filters):
        return []
    fusion = Fusion(index, vector, question, query) if query.hybrid else None
    kind = DOCUMENTS if query.unit == "document" else MAIN
    near = _nearest(index, vector, query, filters) if fusion is None or query.alpha > 0 else []
    found = Candidates(near) if fusion is None else fusion.candidates(near, filters)
    hits = read_hits(index, kind, found, vector, query.chosen_from)
    if query.mmr and hits:
        hits = _diversified(index, kind, hits, query)
    if fusion is not None:
        hits = fusion.with_matches(hits)
    return _with_sentences(index, vector, hits, fusion) if query.sentences else hits


def _with_sentences(index: IndexCore, vector: Doubles, hits: Sequence[Hit], fusion: Fusion | None) -> list[Hit]:
    hits = add_highlights(index, vector, hits)
    return fusion.with_scored_sentences(hits) if fusion is not None else hits


def _row_filters(index: IndexCore, query: Query) -> list[Filter]:
    """Conditions that exclude rows that are being written or removed, and those of the caller."""
    filters: list[Filter] = []
    if query.unit == "document":
        filters.append({DIGEST: {"$ne": ""}})
    elif hidden := index.hidden_versions():
        filters.append({DIGEST: {"$nin": sorted(hidden)}})
    if query.documents is not None:
        filters.append({DOCUMENT: {"$in": list(query.documents)}})
    if query.where:
        filters.append(query.where)
    return filters


def _document_filter(index: IndexCore, vector: Doubles, query: Query) -> list[Filter]:
    """The condition of `prefilter`: only passages of the nearest documents."""
    if query.prefilter is None:
        return []
    # Documents' rows have no pages or offsets, so a condition on these applies to passages alone.
    where = query.where if query.where is None or not _field_names(query.where) & set(RESERVED) else None
    options: dict[str, Any] = {"mmr": False, "hybrid": False, "where_document": None}
    query = replace(query, unit="document", k=query.prefilter, where=where, **options)
    nearest = _nearest(index, vector, query, _row_filters(index, query))
    return [{DOCUMENT: {"$in": nearest}}]  # whose ids are those of their rows


def _field_names(where: Any) -> set[str]:
    """Names of operators and metadata in a condition."""
    if isinstance(where, list):
        return set().union(*map(_field_names, where))
    if not isinstance(where, dict):
        return set()
    return set(where).union(*map(_field_names, where.values()))


def _nearest(index: IndexCore, vector: Doubles, query: Query, filters: Sequence[Filter]) -> list[str]:
    """Ids of the nearest rows."""
    if nothing_allowed(query, filters):
        return []
    collection = index.store.collection(DOCUMENTS if query.unit == "document" else MAIN)
    with translated_errors(index.store.place):
        got = collection.query(
            query_embeddings=np.asarray(vector, np.float32)[None],
            n_results=int(query.candidates),
            ids=None if query.ids is None else list(query.ids),
            where=conjunction(filters),
            where_document=query.where_document,  # type: ignore[arg-type]
            include=[],
        )
    return got["ids"][0]


def _diversified(index: IndexCore, kind: str, hits: Sequence[Hit], query: Query) -> list[Hit]:
    """Hits chosen by maximal marginal relevance; fused scores take the range of the hits' cosines."""
    rows = Rows([hit.id for hit in hits], [dict(hit.row) for hit in hits], [], np.zeros((0, 0), np.float32))
    vectors = unit(index.store.vectors_of(kind, rows).astype(np.float64))
    similarity = np.array([hit.cosine for hit in hits])
    if query.hybrid:
        scores = np.array([hit.score for hit in hits])
        low, high = scores.min(), scores.max()
        share = (scores - low) / (high - low) if high > low else np.ones_like(scores)
        similarity = similarity.min() + share * (similarity.max() - similarity.min())
    return [hits[number] for number in mmr_order(similarity, vectors, query.k, query.lambda_mult)]
