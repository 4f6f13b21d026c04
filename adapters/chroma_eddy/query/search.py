"""Search: nearest vectors under filters, optionally fused with BM25, diversified, and with highlighted sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from chromadb.errors import NotFoundError

from chroma_eddy.errors import ForeignCollection, damaged
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.fusion import Fusion
from chroma_eddy.query.highlights import add_highlights
from chroma_eddy.query.hits import check_row, make_hit
from chroma_eddy.query.options import Filter, Query, Unit, conjunction, nothing_allowed
from chroma_eddy.query.ranking import mmr_order
from chroma_eddy.rows.documents import read_texts
from chroma_eddy.rows.schema import DIGEST, PIECE, DocumentRow
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, MAIN, SENTENCES
from chroma_eddy.types import RESERVED, Hit
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations import DOCUMENT, END, START, Doubles

_COLLECTIONS = {"passage": MAIN, "sentence": SENTENCES, "document": DOCUMENTS}


def search(
    index: IndexCore, vectors: Doubles, questions: Sequence[str] | None, query: Query, fingerprint: str
) -> list[list[Hit]]:
    """Find each question's hits, best first; reload the index if another process replaces it meanwhile.

    The vectors have the shape (questions, dimension), and come from the embedder of this fingerprint. The questions'
    texts are for `hybrid` alone.

    Raises:
        FingerprintMismatch: Another embedder made the index's vectors.
        InvalidParameter: The index cannot answer such a query.
    """
    try:
        if fingerprint == index.settings.fingerprint:
            hits = _search(index, vectors, questions, query)
            if fingerprint == index.settings.fingerprint:  # else another thread has fitted the index again meanwhile
                return hits
    except NotFoundError:
        pass
    index.reload()
    if fingerprint != index.settings.fingerprint:
        raise FingerprintMismatch(
            f"The questions to index {index.name!r} were embedded by another maker than its documents.\n"
            f"Fingerprint of the index: {index.settings.fingerprint}, of the questions: {fingerprint}; embed the "
            "questions again, with index.embedder"
        )
    return _search(index, vectors, questions, query)


def _search(index: IndexCore, vectors: Doubles, questions: Sequence[str] | None, query: Query) -> list[list[Hit]]:
    query.check()
    query = query.resolved(questions is not None and index.words.on_disk)
    if index.was_absent and not index.exists:
        return [[] for _ in vectors]
    if query.unit == "sentence" and not index.settings.sentence_vectors:
        raise InvalidParameter(
            f"index {index.name!r} was made with sentence_vectors=False; reindex it with True to search sentences"
        )
    if (query.unit != "passage" or query.prefilter is not None) and index.holds_pieces:
        raise InvalidParameter(
            f"index {index.name!r} holds pieces that a framework has cut, of which there are no sentences and no whole "
            "documents: search passages, without prefilter"
        )
    texts = questions or [""] * len(vectors)
    return [
        index.read_consistently(partial(_search_one, index, vector, text, query))
        for vector, text in zip(vectors, texts, strict=True)
    ]


def _search_one(index: IndexCore, vector: Doubles, question: str, query: Query, attempt: int) -> list[Hit]:
    """Find one question's hits, all of versions that were complete both before and after the search.

    The first attempt does not exclude versions that are being written, because a filter takes time; later ones do.
    """
    pending = index.incomplete() if attempt else {}
    store = index.store
    if pending and query.unit == "document":
        store.refresh(force=True)
    generation = store.connection.generation
    filters = [*_row_filters(index, query, pending), *_document_filter(index, vector, query, pending)]
    if nothing_allowed(query, filters):
        return []
    fusion = Fusion(index, vector, question, query) if query.hybrid else None
    hits = _nearest(index, vector, query, filters) if fusion is None or query.alpha > 0 else []
    if fusion is not None:
        hits = fusion.hits(hits, filters)
    hits = _diversified(index, hits[: query.chosen_from], query) if query.mmr and hits else hits[: query.k]
    _check_versions(index, hits, pending)
    # Documents and pieces keep their ids when they change, so their vectors may be those of an earlier text.
    if query.unit == "document" or any(PIECE in hit.row for hit in hits):
        store.refresh()
        if store.connection.generation != generation:
            raise ForeignCollection(f"index {index.name!r} is being changed all the time: ask again")
    if fusion is not None:
        hits = fusion.with_matches(hits)
    if not query.sentences:
        return hits
    hits = add_highlights(index, vector, hits)
    return fusion.with_scored_sentences(hits) if fusion is not None else hits


def _check_versions(index: IndexCore, hits: Sequence[Hit], pending: Mapping[str, DocumentRow]) -> None:
    """Refuse a hit of another version than the one that queries are to find, as the documents' rows say."""
    hits = [hit for hit in hits if PIECE not in hit.row]
    rows = index.entries(sorted({hit.document for hit in hits})) if hits else {}
    for hit in hits:
        row, before = rows.get(hit.document), pending.get(hit.document)
        digest = hit.row[DIGEST]
        expected = (digest, "") if before is None else (before.digest, before.pending)
        if row is None or row.digest != digest or (row.digest, row.pending) != expected:
            raise damaged(hit.document, f"the version that {index.name + DOCUMENTS} names")


def _row_filters(index: IndexCore, query: Query, pending: Mapping[str, DocumentRow]) -> list[Filter]:
    """Conditions that exclude rows that are being written, and those of the caller."""
    filters: list[Filter] = []
    if query.unit == "document":
        if new := [id_ for id_, row in pending.items() if not row.digest]:
            filters.append({DOCUMENT: {"$nin": new}})
    elif pending:
        filters.append({DIGEST: {"$nin": [row.pending for row in pending.values() if row.pending]}})
    if query.documents is not None:
        filters.append({DOCUMENT: {"$in": list(query.documents)}})
    if query.where and query.unit == "sentence":
        # Sentences' rows do not have the document's metadata.
        filters.append({DOCUMENT: {"$in": index.store.get(DOCUMENTS, where=query.where).ids}})
    elif query.where:
        filters.append(query.where)
    return filters


def _document_filter(
    index: IndexCore, vector: Doubles, query: Query, pending: Mapping[str, DocumentRow]
) -> list[Filter]:
    """The condition of `prefilter`: only passages of the nearest documents."""
    if query.prefilter is None:
        return []
    # Documents' rows have no pages or offsets, so a condition on these applies to passages alone.
    where = query.where if query.where is None or not _field_names(query.where) & set(RESERVED) else None
    options: dict[str, Any] = {"mmr": False, "hybrid": False, "where_document": None}
    query = replace(query, unit="document", k=query.prefilter, where=where, **options)
    hits = _nearest(index, vector, query, _row_filters(index, query, pending), texts=False)
    _check_versions(index, hits, pending)
    return [{DOCUMENT: {"$in": [hit.document for hit in hits]}}]


def _field_names(where: Any) -> set[str]:
    """Names of operators and metadata in a condition."""
    if isinstance(where, list):
        return set().union(*map(_field_names, where))
    if not isinstance(where, dict):
        return set()
    return set(where).union(*map(_field_names, where.values()))


def _nearest(
    index: IndexCore, vector: Doubles, query: Query, filters: Sequence[Filter], *, texts: bool = True
) -> list[Hit]:
    kind = _COLLECTIONS[query.unit]
    if nothing_allowed(query, filters):
        return []
    collection = index.store.collection(kind)
    with translated_errors(index.store.place):
        got: Any = collection.query(
            query_embeddings=np.asarray(vector, np.float32)[None],
            n_results=int(query.candidates),
            ids=None if query.ids is None else list(query.ids),
            where=conjunction(filters),
            where_document=query.where_document,  # type: ignore[arg-type]
            include=["metadatas", "documents", "distances"],
        )
    ids, rows, distances = got["ids"][0], got["metadatas"][0], got["distances"][0]
    for id_, row in zip(ids, rows, strict=True):
        check_row(id_, row)
    stored_texts = [text or "" for text in got["documents"][0]]
    own_texts = _texts_of(index, query.unit, rows) if texts and kind != MAIN else stored_texts
    return [
        make_hit(id_, row, text, float(1 - distance))
        for id_, row, text, distance in zip(ids, rows, own_texts, distances, strict=True)
    ]


def _diversified(index: IndexCore, hits: Sequence[Hit], query: Query) -> list[Hit]:
    """Hits chosen by maximal marginal relevance; fused scores take the range of the hits' cosines."""
    rows = index.store.get(_COLLECTIONS[query.unit], ids=[hit.id for hit in hits], embeddings=True)
    by_id = dict(zip(rows.ids, np.asarray(rows.vectors, np.float64), strict=True))
    if gone := [hit.document for hit in hits if hit.id not in by_id]:
        raise damaged(gone[0], f"rows in {index.name + _COLLECTIONS[query.unit]}")
    vectors = np.stack([by_id[hit.id] / np.linalg.norm(by_id[hit.id]) for hit in hits])
    similarity = np.array([hit.cosine for hit in hits])
    if query.hybrid:
        scores = np.array([hit.score for hit in hits])
        low, high = scores.min(), scores.max()
        share = (scores - low) / (high - low) if high > low else np.ones_like(scores)
        similarity = similarity.min() + share * (similarity.max() - similarity.min())
    return [hits[number] for number in mmr_order(similarity, vectors, query.k, query.lambda_mult)]


def _texts_of(index: IndexCore, unit: Unit, rows: Sequence[Any]) -> list[str]:
    """Texts of documents, or of sentences, which their passages hold."""
    if unit == "document":
        return read_texts(index.store, rows)
    passage_ids = sorted({row["eddy_passage"] for row in rows})
    got = index.store.get(MAIN, ids=passage_ids, metadatas=True, documents=True)
    passages = {id_: (row[START], text) for id_, row, text in zip(got.ids, got.metadatas, got.texts, strict=True)}
    texts = []
    for row in rows:
        if row["eddy_passage"] not in passages:
            raise damaged(row[DOCUMENT], f"passages in {index.name}")
        start, text = passages[row["eddy_passage"]]
        texts.append(text[row[START] - start : row[END] - start])
    return texts
