"""Questions to hits: nearest vectors, filters, words beside meanings, sentences to mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from chromadb.errors import NotFoundError

from chroma_eddy.errors import ForeignCollection, damaged
from chroma_eddy.query.highlights import add_highlights
from chroma_eddy.query.ranking import cosines, mmr_order, reciprocal_rank_fusion
from chroma_eddy.rows.documents import read_texts
from chroma_eddy.rows.schema import DIGEST, DOCUMENT, END, HEADINGS, PIECE, START, DocumentRow, user_metadata
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import DOCUMENTS, MAIN, SENTENCES
from chroma_eddy.types import RESERVED, Hit
from eddy_embed.errors import FingerprintMismatch, InvalidParameter

if TYPE_CHECKING:
    from chroma_eddy.index_core import IndexCore

    Doubles = np.ndarray[Any, np.dtype[np.float64]]

Granularity = Literal["passages", "sentences", "documents"]
_COLLECTIONS = {"passages": MAIN, "sentences": SENTENCES, "documents": DOCUMENTS}


@dataclass(frozen=True)
class Query:
    """What is asked of a query, beside the question; `Index.query` says what it means."""

    k: int
    where: dict[str, Any] | None = None
    where_document: dict[str, Any] | None = None
    documents: Sequence[str] | None = None
    granularity: Granularity = "passages"
    prefilter: int | None = None
    hybrid: bool = False
    mmr: bool = False
    fetch_k: int | None = None
    lambda_mult: float = 0.5
    sentences: bool = False
    ids: Sequence[str] | None = None

    def check(self) -> None:
        """Refuse what does not go together.

        Raises:
            InvalidParameter: With what it is.
        """
        for name, value in (("k", self.k), ("prefilter", self.prefilter), ("fetch_k", self.fetch_k)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidParameter(f"{name}={value!r:.80} must be a whole number of at least 1")
        if self.granularity not in get_args(Granularity):
            raise InvalidParameter(
                f"granularity={self.granularity!r:.80} is unknown; choose one of {', '.join(get_args(Granularity))}"
            )
        if not 0 <= self.lambda_mult <= 1:
            raise InvalidParameter(f"lambda_mult={self.lambda_mult!r} must lie between 0 and 1")
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

    @property
    def candidates(self) -> int:
        """How many of the nearest are looked at."""
        if not (self.mmr or self.hybrid):
            return self.k
        return max(self.k, self.fetch_k or (20 if self.mmr else 100))


def search(
    index: IndexCore, vectors: Doubles, questions: Sequence[str] | None, wanted: Query, fingerprint: str
) -> list[list[Hit]]:
    """As `_search`, also where another process makes the index anew meanwhile.

    Args:
        index: Where.
        vectors: The questions'.
        questions: Their texts.
        wanted: What is asked.
        fingerprint: Of what made the vectors.

    Raises:
        FingerprintMismatch: The index's vectors are made otherwise.
    """
    try:
        if fingerprint == index.recipe.fingerprint:
            found = _search(index, vectors, questions, wanted)
            if fingerprint == index.recipe.fingerprint:  # else another thread has refitted the index meanwhile
                return found
    except NotFoundError:
        pass
    index.reload()
    if fingerprint != index.recipe.fingerprint:
        raise FingerprintMismatch(
            f"index {index.name!r} holds vectors of fingerprint {index.recipe.fingerprint}, and the questions' were "
            f"made by {fingerprint}: embed the questions again, with index.embedder"
        )
    return _search(index, vectors, questions, wanted)


def _search(index: IndexCore, vectors: Doubles, questions: Sequence[str] | None, wanted: Query) -> list[list[Hit]]:
    """Hits of each question, best first.

    Args:
        index: Where.
        vectors: The questions', shape (questions, dimension).
        questions: Their texts, which `hybrid` needs.
        wanted: What is asked.
    """
    wanted.check()
    if index.was_absent and not index.exists:
        return [[] for _ in vectors]
    if wanted.granularity == "sentences" and not index.recipe.sentence_vectors:
        raise InvalidParameter(
            f"index {index.name!r} was made with sentence_vectors=False; reindex it with True to search sentences"
        )
    if (wanted.granularity != "passages" or wanted.prefilter is not None) and index.holds_pieces:
        raise InvalidParameter(
            f"index {index.name!r} holds pieces that a framework has cut, of which there are no sentences and no whole "
            "documents: search passages, without prefilter"
        )
    asked_for = questions or [""] * len(vectors)
    return [
        index.read_consistently(partial(_search_one, index, vector, question, wanted))
        for vector, question in zip(vectors, asked_for, strict=True)
    ]


def _search_one(index: IndexCore, vector: Doubles, question: str, wanted: Query, attempt: int) -> list[Hit]:
    """Hits of one question, all of versions that were whole both before and after they were looked for.

    What is being written is left out from the beginning only where it was met: to leave rows out takes time.
    """
    pending = index.incomplete() if attempt else {}
    store = index.store
    if pending and wanted.granularity == "documents":
        store.refresh(anew=True)
    generation = store.connection.generation
    filters = _row_filters(index, wanted, pending)
    own = [*filters, *_document_filter(index, vector, wanted, pending)]
    hits = _nearest(index, vector, wanted, own)
    if wanted.hybrid:
        hits = _fused_with_bm25(index, vector, question, wanted, own, hits)
    hits = hits[: wanted.k]
    _check_versions(index, hits, pending)
    # Unlike a passage, these keep their ids when they change: a vector may be the one that another text had before.
    if wanted.granularity == "documents" or any(PIECE in hit.row for hit in hits):
        store.refresh()
        if store.connection.generation != generation:
            raise ForeignCollection(f"index {index.name!r} is being changed all the time: ask again")
    return add_highlights(index, vector, hits) if wanted.sentences else hits


def _check_versions(index: IndexCore, hits: Sequence[Hit], pending: Mapping[str, DocumentRow]) -> None:
    """Hold what was found against the documents' rows.

    Raises:
        ForeignCollection: A hit is of another version than the one that is to be found.
    """
    whole = [hit for hit in hits if PIECE not in hit.row]
    entries = index.entries(sorted({hit.document for hit in whole})) if whole else {}
    for hit in whole:
        entry, before = entries.get(hit.document), pending.get(hit.document)
        found = hit.row[DIGEST]
        wanted = (found, "") if before is None else (before.digest, before.other)
        if entry is None or entry.digest != found or (entry.digest, entry.other) != wanted:
            raise damaged(hit.document, f"the version that {index.name + DOCUMENTS} names")


def _row_filters(index: IndexCore, wanted: Query, pending: Mapping[str, DocumentRow]) -> list[dict[str, Any]]:
    """Conditions on rows: what is being written is not found, and what the caller asks."""
    found: list[dict[str, Any]] = []
    if wanted.granularity == "documents":
        if new := [id_ for id_, entry in pending.items() if not entry.digest]:
            found.append({DOCUMENT: {"$nin": new}})
    elif pending:
        found.append({DIGEST: {"$nin": [entry.other for entry in pending.values() if entry.other]}})
    if wanted.documents is not None:
        found.append({DOCUMENT: {"$in": list(wanted.documents)}})
    if wanted.where and wanted.granularity == "sentences":
        # Metadata are with passages and documents; a sentence has its document's.
        found.append({DOCUMENT: {"$in": index.store.get(DOCUMENTS, where=wanted.where).ids}})
    elif wanted.where:
        found.append(wanted.where)
    return found


def _document_filter(
    index: IndexCore, vector: Doubles, wanted: Query, pending: Mapping[str, DocumentRow]
) -> list[dict[str, Any]]:
    if wanted.prefilter is None:
        return []
    whole = replace(wanted, granularity="documents", k=wanted.prefilter, mmr=False, hybrid=False, where_document=None)
    where = wanted.where if wanted.where is None or not _field_names(wanted.where) & set(RESERVED) else None
    near = _nearest(index, vector, whole, _row_filters(index, replace(whole, where=where), pending), texts=False)
    _check_versions(index, near, pending)
    return [{DOCUMENT: {"$in": [hit.document for hit in near]}}]


def _field_names(where: Any) -> set[str]:
    """Names that a condition speaks of."""
    if isinstance(where, list):
        return set().union(*map(_field_names, where))
    if not isinstance(where, dict):
        return set()
    return set(where).union(*map(_field_names, where.values()))


def _conjunction(filters: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    return {"$and": list(filters)} if len(filters) > 1 else next(iter(filters), None)


def _nearest(
    index: IndexCore, vector: Doubles, wanted: Query, filters: Sequence[dict[str, Any]], *, texts: bool = True
) -> list[Hit]:
    part = _COLLECTIONS[wanted.granularity]
    if any(each.get(DOCUMENT) == {"$in": []} for each in filters) or (wanted.ids is not None and not wanted.ids):
        return []
    include: Any = ["metadatas", "documents", "distances", *(["embeddings"] if wanted.mmr else [])]
    collection = index.store.collection(part)
    with translated_errors(index.store.place):
        got = collection.query(
            query_embeddings=np.asarray(vector, np.float32)[None],
            n_results=wanted.candidates,
            ids=None if wanted.ids is None else list(wanted.ids),
            where=_conjunction(filters),
            where_document=wanted.where_document,  # type: ignore[arg-type]
            include=include,
        )
    rows: list[Any] = (got["metadatas"] or [[]])[0]
    distances = (got["distances"] or [[]])[0]
    found = (got["documents"] or [[""] * len(rows)])[0]
    for id_, row in zip(got["ids"][0], rows, strict=True):
        _check_row(id_, row)
    own = _texts_of(index, wanted.granularity, rows) if texts and part != MAIN else [text or "" for text in found]
    hits = [
        _make_hit(id_, row, text, 1 - distance)
        for id_, row, text, distance in zip(got["ids"][0], rows, own, distances, strict=True)
    ]
    if not wanted.mmr or not hits:
        return hits
    near = np.asarray((got["embeddings"] or [[]])[0], np.float64)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    return [hits[at] for at in mmr_order(np.asarray(vector, np.float64), near, wanted.k, wanted.lambda_mult)]


def _check_row(id_: str, row: Any) -> None:
    """Refuse a row that the index did not write.

    Raises:
        ForeignCollection: It is one.
    """
    if not row or DOCUMENT not in row:
        raise ForeignCollection(
            f"row {id_!r:.80} was put into a collection of the index by something else, and nobody knows what made its "
            "vector; delete it: index.collection.delete(ids=[...])"
        )


def _make_hit(id_: str, row: Any, text: str, cosine: float) -> Hit:
    """A row found."""
    more = {"headings": str(row.get(HEADINGS, "")), **{name: row.get(name) for name in ("page", "last_page")}}
    start = row.get(START, 0)
    end = row.get(END, row.get("eddy_characters", start + len(text)))
    return Hit(id_, row[DOCUMENT], text, start, end, float(cosine), float(cosine), user_metadata(row), **more, row=row)


def _texts_of(index: IndexCore, granularity: Granularity, rows: Sequence[Any]) -> list[str]:
    if granularity == "documents":
        return read_texts(index.store, rows)
    owners = sorted({row["eddy_passage"] for row in rows})
    got = index.store.get(MAIN, ids=owners, metadatas=True, documents=True)
    around = {id_: (row[START], text) for id_, row, text in zip(got.ids, got.metadatas, got.texts, strict=True)}
    found = []
    for row in rows:
        if row["eddy_passage"] not in around:
            raise damaged(row[DOCUMENT], f"passages in {index.name}")
        first, text = around[row["eddy_passage"]]
        found.append(text[row[START] - first : row[END] - first])
    return found


def _fused_with_bm25(
    index: IndexCore, vector: Doubles, question: str, wanted: Query, filters: Sequence[dict[str, Any]], hits: list[Hit]
) -> list[Hit]:
    """Fuse the order by meaning with BM25's."""
    allowed = None
    if filters or wanted.where_document or wanted.ids is not None:
        with translated_errors(index.store.place):
            got = index.store.collection(MAIN).get(
                ids=None if wanted.ids is None else list(wanted.ids),
                where=_conjunction(filters),
                where_document=wanted.where_document,  # type: ignore[arg-type]
                include=[],
            )
        allowed = set(got["ids"])
    ranked = index.bm25().rank(question, allowed, wanted.candidates)
    scores = reciprocal_rank_fusion([[hit.id for hit in hits], ranked])
    known = {hit.id: hit for hit in hits}
    first = list(scores)[: wanted.k]
    missing = [id_ for id_ in first if id_ not in known]
    rows = index.store.get(MAIN, ids=missing, metadatas=True, documents=True, embeddings=True)
    for id_, row, text, own in zip(rows.ids, rows.metadatas, rows.texts, rows.vectors, strict=True):
        _check_row(id_, row)
        known[id_] = _make_hit(id_, row, text, float(cosines(vector, np.asarray(own, np.float64))))
    if gone := [id_ for id_ in first if id_ not in known]:
        raise ForeignCollection(
            f"passage {gone[0]!r} of index {index.name!r} is gone: something else has deleted it; call check()"
        )
    return [replace(known[id_], score=scores[id_]) for id_ in first]
