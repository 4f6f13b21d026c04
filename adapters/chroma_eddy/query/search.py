"""Search: nearest vectors under filters, optionally fused with BM25, diversified, and with highlighted sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from chromadb.errors import NotFoundError

from chroma_eddy.errors import ForeignCollection, damaged
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.highlights import add_highlights
from chroma_eddy.query.ranking import cosines, mmr_order, reciprocal_rank_fusion, standardised
from chroma_eddy.rows.documents import read_texts
from chroma_eddy.rows.schema import DIGEST, DOCUMENT, END, HEADINGS, PIECE, START, DocumentRow, user_metadata
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, MAIN, SENTENCES
from chroma_eddy.types import RESERVED, Hit
from eddy_embed.encoding.validation import check_count
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.utils.arrays import Doubles

Granularity = Literal["passages", "sentences", "documents"]
Fusion = Literal["scores", "ranks"]
Filter = dict[str, Any]
_COLLECTIONS = {"passages": MAIN, "sentences": SENTENCES, "documents": DOCUMENTS}


@dataclass(frozen=True)
class Query:
    """Options of a query, as `Index.query` documents them, and `ids`, the only rows to look at; None: all."""

    k: int
    where: Filter | None = None
    where_document: Filter | None = None
    documents: Sequence[str] | None = None
    granularity: Granularity = "passages"
    prefilter: int | None = None
    hybrid: bool = False
    fusion: Fusion = "scores"
    alpha: float = 0.5
    mmr: bool = False
    fetch_k: int | None = None
    lambda_mult: float = 0.5
    sentences: bool = False
    ids: Sequence[str] | None = None

    def check(self) -> None:
        """Refuse options out of range and combinations that do not exist."""
        check_count("k", self.k)
        check_count("prefilter", self.prefilter, optional=True)
        check_count("fetch_k", self.fetch_k, optional=True)
        if self.granularity not in get_args(Granularity):
            raise InvalidParameter(
                f"granularity={self.granularity!r:.80} is unknown; choose one of {', '.join(get_args(Granularity))}"
            )
        if not 0 <= self.lambda_mult <= 1:
            raise InvalidParameter(f"lambda_mult={self.lambda_mult!r} must lie between 0 and 1")
        self._check_fusion()
        if isinstance(self.documents, str):
            raise InvalidParameter(f"documents={self.documents!r:.80} must be a list of ids")
        if self.sentences and self.granularity != "passages":
            raise InvalidParameter(
                f"sentences are marked in passages, not in {self.granularity}; leave one of them out"
            )
        if self.mmr and self.hybrid:
            raise InvalidParameter("mmr and hybrid order hits in two ways; choose one of them")
        if self.granularity != "passages" and (self.hybrid or self.where_document is not None):
            raise InvalidParameter(f"words are searched in passages, not in {self.granularity}; leave granularity out")

    def _check_fusion(self) -> None:
        if self.fusion not in get_args(Fusion):
            raise InvalidParameter(
                f"fusion={self.fusion!r:.80} is unknown; choose one of {', '.join(get_args(Fusion))}"
            )
        if not 0 <= self.alpha <= 1:
            raise InvalidParameter(f"alpha={self.alpha!r} must lie between 0, words alone, and 1, meaning alone")
        if not self.hybrid and (self.alpha, self.fusion) != (0.5, "scores"):
            raise InvalidParameter(
                f"alpha={self.alpha!r} and fusion={self.fusion!r} belong to hybrid=True; leave them out"
            )
        if self.alpha != 0.5 and self.fusion == "ranks":
            raise InvalidParameter(f"alpha={self.alpha!r} weighs scores, and fusion='ranks' has none; leave it out")

    @property
    def candidates(self) -> int:
        """Number of nearest rows to fetch."""
        if not (self.mmr or self.hybrid):
            return self.k
        return max(self.k, self.fetch_k or (20 if self.mmr else 100))


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
        if fingerprint == index.recipe.fingerprint:
            hits = _search(index, vectors, questions, query)
            if fingerprint == index.recipe.fingerprint:  # else another thread has fitted the index again meanwhile
                return hits
    except NotFoundError:
        pass
    index.reload()
    if fingerprint != index.recipe.fingerprint:
        raise FingerprintMismatch(
            f"index {index.name!r} holds vectors of fingerprint {index.recipe.fingerprint}, and the questions' were "
            f"made by {fingerprint}: embed the questions again, with index.embedder"
        )
    return _search(index, vectors, questions, query)


def _search(index: IndexCore, vectors: Doubles, questions: Sequence[str] | None, query: Query) -> list[list[Hit]]:
    query.check()
    if index.was_absent and not index.exists:
        return [[] for _ in vectors]
    if query.granularity == "sentences" and not index.recipe.sentence_vectors:
        raise InvalidParameter(
            f"index {index.name!r} was made with sentence_vectors=False; reindex it with True to search sentences"
        )
    if (query.granularity != "passages" or query.prefilter is not None) and index.holds_pieces:
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
    if pending and query.granularity == "documents":
        store.refresh(force=True)
    generation = store.connection.generation
    filters = [*_row_filters(index, query, pending), *_document_filter(index, vector, query, pending)]
    hits = _nearest(index, vector, query, filters)
    if query.hybrid:
        hits = _fuse_with_bm25(index, vector, question, query, filters, hits)
    hits = hits[: query.k]
    _check_versions(index, hits, pending)
    # Documents and pieces keep their ids when they change, so their vectors may be those of an earlier text.
    if query.granularity == "documents" or any(PIECE in hit.row for hit in hits):
        store.refresh()
        if store.connection.generation != generation:
            raise ForeignCollection(f"index {index.name!r} is being changed all the time: ask again")
    return add_highlights(index, vector, hits) if query.sentences else hits


def _check_versions(index: IndexCore, hits: Sequence[Hit], pending: Mapping[str, DocumentRow]) -> None:
    """Refuse a hit of another version than the one that queries are to find, as the documents' rows say."""
    hits = [hit for hit in hits if PIECE not in hit.row]
    rows = index.entries(sorted({hit.document for hit in hits})) if hits else {}
    for hit in hits:
        row, before = rows.get(hit.document), pending.get(hit.document)
        digest = hit.row[DIGEST]
        expected = (digest, "") if before is None else (before.digest, before.other)
        if row is None or row.digest != digest or (row.digest, row.other) != expected:
            raise damaged(hit.document, f"the version that {index.name + DOCUMENTS} names")


def _row_filters(index: IndexCore, query: Query, pending: Mapping[str, DocumentRow]) -> list[Filter]:
    """Conditions that exclude rows that are being written, and those of the caller."""
    filters: list[Filter] = []
    if query.granularity == "documents":
        if new := [id_ for id_, row in pending.items() if not row.digest]:
            filters.append({DOCUMENT: {"$nin": new}})
    elif pending:
        filters.append({DIGEST: {"$nin": [row.other for row in pending.values() if row.other]}})
    if query.documents is not None:
        filters.append({DOCUMENT: {"$in": list(query.documents)}})
    if query.where and query.granularity == "sentences":
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
    query = replace(query, granularity="documents", k=query.prefilter, where=where, **options)
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


def _conjunction(filters: Sequence[Filter]) -> Filter | None:
    return {"$and": list(filters)} if len(filters) > 1 else next(iter(filters), None)


def _nothing_allowed(query: Query, filters: Sequence[Filter]) -> bool:
    """Whether no row can meet the conditions, which Chroma would not take."""
    return query.ids == [] or any(condition.get(DOCUMENT) == {"$in": []} for condition in filters)


def _nearest(
    index: IndexCore, vector: Doubles, query: Query, filters: Sequence[Filter], *, texts: bool = True
) -> list[Hit]:
    part = _COLLECTIONS[query.granularity]
    if _nothing_allowed(query, filters):
        return []
    include: Any = ["metadatas", "documents", "distances", *(["embeddings"] if query.mmr else [])]
    collection = index.store.collection(part)
    with translated_errors(index.store.place):
        got: Any = collection.query(
            query_embeddings=np.asarray(vector, np.float32)[None],
            n_results=int(query.candidates),
            ids=None if query.ids is None else list(query.ids),
            where=_conjunction(filters),
            where_document=query.where_document,  # type: ignore[arg-type]
            include=include,
        )
    ids, rows, distances = got["ids"][0], got["metadatas"][0], got["distances"][0]
    for id_, row in zip(ids, rows, strict=True):
        _check_row(id_, row)
    stored_texts = [text or "" for text in got["documents"][0]]
    own_texts = _texts_of(index, query.granularity, rows) if texts and part != MAIN else stored_texts
    hits = [
        _make_hit(id_, row, text, float(1 - distance))
        for id_, row, text, distance in zip(ids, rows, own_texts, distances, strict=True)
    ]
    if not query.mmr or not hits:
        return hits
    unit = np.asarray(got["embeddings"][0], np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return [hits[number] for number in mmr_order(np.asarray(vector, np.float64), unit, query.k, query.lambda_mult)]


def _check_row(id_: str, row: Any) -> None:
    """Refuse a row that the index did not write."""
    if not row or DOCUMENT not in row:
        raise ForeignCollection(
            f"row {id_!r:.80} was put into a collection of the index by something else, and nobody knows what made its "
            "vector; delete it: index.collection.delete(ids=[...])"
        )


def _make_hit(id_: str, row: Any, text: str, cosine: float) -> Hit:
    start = row.get(START, 0)
    end = row.get(END, row.get("eddy_characters", start + len(text)))
    return Hit(
        *(id_, row[DOCUMENT], text, start, end, cosine, cosine, user_metadata(row)),
        headings=str(row.get(HEADINGS, "")),
        page=row.get("page"),
        last_page=row.get("last_page"),
        row=row,
    )


def _texts_of(index: IndexCore, granularity: Granularity, rows: Sequence[Any]) -> list[str]:
    """Texts of documents, or of sentences, which their passages hold."""
    if granularity == "documents":
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


def _fuse_with_bm25(
    index: IndexCore, vector: Doubles, question: str, query: Query, filters: Sequence[Filter], hits: list[Hit]
) -> list[Hit]:
    """The hits, and the passages that share words with the question, sorted by both cosine and BM25."""
    if _nothing_allowed(query, filters):
        return []
    allowed = None
    if filters or query.where_document or query.ids is not None:
        with translated_errors(index.store.place):
            got = index.store.collection(MAIN).get(
                ids=None if query.ids is None else list(query.ids),
                where=_conjunction(filters),
                where_document=query.where_document,  # type: ignore[arg-type]
                include=[],
            )
        allowed = set(got["ids"])
    bm25, sample = index.bm25()
    scores = bm25.scores(question)
    by_words = bm25.best(scores, allowed, query.candidates)
    by_id = {hit.id: hit for hit in hits}
    missing = [id_ for id_ in by_words if id_ not in by_id]
    rows = index.store.get(MAIN, ids=missing, metadatas=True, documents=True, embeddings=True)
    for id_, row, text, own in zip(rows.ids, rows.metadatas, rows.texts, rows.vectors, strict=True):
        _check_row(id_, row)
        by_id[id_] = _make_hit(id_, row, text, float(cosines(vector, np.asarray(own, np.float64))))
    if gone := [id_ for id_ in missing if id_ not in by_id]:
        raise ForeignCollection(
            f"passage {gone[0]!r} of index {index.name!r} is gone: something else has deleted it; call check()"
        )
    if not by_id:
        return []
    if query.fusion == "ranks":
        fused = reciprocal_rank_fusion([[hit.id for hit in hits], by_words])
    else:
        worded = standardised(scores, scores)
        found = np.array([hit.cosine for hit in by_id.values()])
        near = standardised(found, cosines(vector, sample)).tolist()
        fused = {
            id_: query.alpha * cosine + (1 - query.alpha) * float(worded[bm25.rows[id_]])
            for id_, cosine in zip(by_id, near, strict=True)
            if id_ in bm25.rows
        }
    best = sorted(fused, key=lambda id_: -fused[id_])[: query.k]
    return [replace(by_id[id_], score=fused[id_]) for id_ in best]
