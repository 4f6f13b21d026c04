"""Questions to hits: nearest vectors, filters, words beside meanings, sentences to mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from chromadb.errors import NotFoundError

from chroma_eddy.document import OWN
from chroma_eddy.errors import ForeignCollection
from chroma_eddy.found import Highlight, Hit
from chroma_eddy.locking import failures
from chroma_eddy.names import DOCUMENTS, MAIN, SENTENCES
from chroma_eddy.pieces import any_in
from chroma_eddy.ranking import Words, cosines, diverse, fused
from chroma_eddy.rows import (
    DIGEST,
    DOCUMENT,
    END,
    HEADINGS,
    PIECE,
    START,
    own_metadata,
    sentence_spans,
    stored_text,
    text_spans,
)
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.ids import passage_id

if TYPE_CHECKING:
    from chroma_eddy.index import Index
    from eddy_embed import Embedder

    Doubles = np.ndarray[Any, np.dtype[np.float64]]

Granularity = Literal["passages", "sentences", "documents"]
_PARTS = {"passages": MAIN, "sentences": SENTENCES, "documents": DOCUMENTS}


@dataclass(frozen=True)
class Wanted:
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

    def among(self, ids: Sequence[str] | None) -> Wanted:
        """The same of some rows alone; None: of all."""
        return replace(self, ids=ids)

    @property
    def candidates(self) -> int:
        """How many of the nearest are looked at."""
        if not (self.mmr or self.hybrid):
            return self.k
        return max(self.k, self.fetch_k or (20 if self.mmr else 100))


def asked(
    index: Index, vectors: Doubles, questions: Sequence[str] | None, wanted: Wanted, fingerprint: str
) -> list[list[Hit]]:
    """As `search`, also where another process makes the index anew meanwhile.

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
            return search(index, vectors, questions, wanted)
    except NotFoundError:
        pass
    index.reload()
    if fingerprint != index.recipe.fingerprint:
        raise FingerprintMismatch(
            f"index {index.name!r} holds vectors of fingerprint {index.recipe.fingerprint}, and the questions' were "
            f"made by {fingerprint}: embed the questions again, with index.embedder"
        )
    return search(index, vectors, questions, wanted)


def search(index: Index, vectors: Doubles, questions: Sequence[str] | None, wanted: Wanted) -> list[list[Hit]]:
    """Hits of each question, best first.

    Args:
        index: Where.
        vectors: The questions', shape (questions, dimension).
        questions: Their texts, which `hybrid` needs.
        wanted: What is asked.
    """
    wanted.check()
    if not index.exists:
        return [[] for _ in vectors]
    if wanted.granularity == "sentences" and not index.recipe.sentence_vectors:
        raise InvalidParameter(
            f"index {index.name!r} was made with sentence_vectors=False; reindex it with True to search sentences"
        )
    if (wanted.granularity != "passages" or wanted.prefilter is not None) and any_in(index):
        raise InvalidParameter(
            f"index {index.name!r} holds pieces that a framework has cut, of which there are no sentences and no whole "
            "documents: search passages, without prefilter"
        )
    filters = _filters(index, wanted)
    found = []
    for at, vector in enumerate(vectors):
        own = [*filters, *_prefiltered(index, vector, wanted, filters)]
        hits = _nearest(index, vector, wanted, own)
        if wanted.hybrid and questions is not None:
            hits = _with_words(index, vector, questions[at], wanted, own, hits)
        found.append(_marked(index, vector, hits[: wanted.k]) if wanted.sentences else hits[: wanted.k])
    return found


def _filters(index: Index, wanted: Wanted) -> list[dict[str, Any]]:
    """Conditions on rows: what is being written is not found, and what the caller asks."""
    found: list[dict[str, Any]] = []
    pending = index.incomplete()
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


def _prefiltered(
    index: Index, vector: Doubles, wanted: Wanted, filters: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    if wanted.prefilter is None:
        return []
    whole = replace(wanted, granularity="documents", k=wanted.prefilter, mmr=False, hybrid=False, where_document=None)
    where = wanted.where if wanted.where is None or not _names(wanted.where) & set(OWN) else None
    near = _nearest(index, vector, whole, _filters(index, replace(whole, where=where)), texts=False)
    return [{DOCUMENT: {"$in": [hit.document for hit in near]}}]


def _names(where: Any) -> set[str]:
    """Names that a condition speaks of."""
    if isinstance(where, list):
        return set().union(*map(_names, where))
    if not isinstance(where, dict):
        return set()
    return set(where).union(*map(_names, where.values()))


def _where(filters: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    return {"$and": list(filters)} if len(filters) > 1 else next(iter(filters), None)


def _nearest(
    index: Index, vector: Doubles, wanted: Wanted, filters: Sequence[dict[str, Any]], *, texts: bool = True
) -> list[Hit]:
    part = _PARTS[wanted.granularity]
    if any(each.get(DOCUMENT) == {"$in": []} for each in filters) or (wanted.ids is not None and not wanted.ids):
        return []
    include: Any = ["metadatas", "documents", "distances", *(["embeddings"] if wanted.mmr else [])]
    collection = index.store.collection(part)
    with failures(index.store.place):
        got = collection.query(
            query_embeddings=np.asarray(vector, np.float32)[None],
            n_results=wanted.candidates,
            ids=None if wanted.ids is None else list(wanted.ids),
            where=_where(filters),
            where_document=wanted.where_document,  # type: ignore[arg-type]
            include=include,
        )
    rows: list[Any] = (got["metadatas"] or [[]])[0]
    distances = (got["distances"] or [[]])[0]
    found = (got["documents"] or [[""] * len(rows)])[0]
    own = _texts(index, wanted.granularity, rows) if texts and part != MAIN else [text or "" for text in found]
    hits = [
        hit_of(id_, row, text, 1 - distance)
        for id_, row, text, distance in zip(got["ids"][0], rows, own, distances, strict=True)
    ]
    if not wanted.mmr or not hits:
        return hits
    near = np.asarray((got["embeddings"] or [[]])[0], np.float64)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    return [hits[at] for at in diverse(np.asarray(vector, np.float64), near, wanted.k, wanted.lambda_mult)]


def hit_of(id_: str, row: Any, text: str, cosine: float) -> Hit:
    """A row found.

    Raises:
        ForeignCollection: The index did not write it.
    """
    if not row or DOCUMENT not in row:
        raise ForeignCollection(
            f"row {id_!r:.80} was put into a collection of the index by something else, and nobody knows what made its "
            "vector; delete it: index.collection.delete(ids=[...])"
        )
    more = {"headings": str(row.get(HEADINGS, "")), **{name: row.get(name) for name in ("page", "last_page")}}
    start = row.get(START, 0)
    end = row.get(END, row.get("eddy_characters", start + len(text)))
    return Hit(id_, row[DOCUMENT], text, start, end, float(cosine), float(cosine), own_metadata(row), **more, row=row)


def _texts(index: Index, granularity: Granularity, rows: Sequence[Any]) -> list[str]:
    if granularity == "documents":
        return [stored_text(index.store, row) for row in rows]
    owners = sorted({row["eddy_passage"] for row in rows})
    got = index.store.get(MAIN, ids=owners, metadatas=True, documents=True)
    around = {id_: (row[START], text) for id_, row, text in zip(got.ids, got.metadatas, got.texts, strict=True)}
    found = []
    for row in rows:
        first, text = around[row["eddy_passage"]]
        found.append(text[row[START] - first : row[END] - first])
    return found


def _with_words(
    index: Index, vector: Doubles, question: str, wanted: Wanted, filters: Sequence[dict[str, Any]], hits: list[Hit]
) -> list[Hit]:
    """Fuse the order by meaning with BM25's."""
    allowed = None
    if filters or wanted.where_document or wanted.ids is not None:
        with failures(index.store.place):
            got = index.store.collection(MAIN).get(
                ids=None if wanted.ids is None else list(wanted.ids),
                where=_where(filters),
                where_document=wanted.where_document,  # type: ignore[arg-type]
                include=[],
            )
        allowed = set(got["ids"])
    ranked = index.words().ranked(question, allowed, wanted.candidates)
    scores = fused([[hit.id for hit in hits], ranked])
    known = {hit.id: hit for hit in hits}
    first = list(scores)[: wanted.k]
    missing = [id_ for id_ in first if id_ not in known]
    rows = index.store.get(MAIN, ids=missing, metadatas=True, documents=True, embeddings=True)
    for id_, row, text, own in zip(rows.ids, rows.metadatas, rows.texts, rows.vectors, strict=True):
        known[id_] = hit_of(id_, row, text, float(cosines(vector, np.asarray(own, np.float64))))
    return [replace(known[id_], score=scores[id_]) for id_ in first]


def words_of(index: Index) -> Words:
    """BM25 over the passages that queries may find."""
    rows = index.store.get(MAIN, documents=True)
    language = str(index.recipe.settings["segmenter"]).rsplit(":", 2)[1]
    return Words(rows.ids, rows.texts, language)


def _marked(index: Index, vector: Doubles, hits: list[Hit]) -> list[Hit]:
    """Passages with their sentences, from stored vectors or, where there are none, from the model."""
    spans = [[(hit.start + start, hit.start + end) for start, end in _sentences(index, hit)] for hit in hits]
    kept = {at for at, hit in enumerate(hits) if index.recipe.sentence_vectors and PIECE not in hit.row}
    stored = iter(_stored(index, [hits[at] for at in sorted(kept)], [spans[at] for at in sorted(kept)]))
    found = []
    for at, (hit, own) in enumerate(zip(hits, spans, strict=True)):
        near = next(stored) if at in kept else _made(index.embedder, hit, own)
        texts = [hit.text[start - hit.start : end - hit.start] for start, end in own]
        rows_ = zip(own, texts, cosines(vector, near), strict=True)
        found.append(replace(hit, sentences=tuple(Highlight(*span, text, float(cos)) for span, text, cos in rows_)))
    return found


Spans = list[list[tuple[int, int]]]


def _sentences(index: Index, hit: Hit) -> list[tuple[int, int]]:
    if PIECE not in hit.row:
        return sentence_spans(hit.row)
    return text_spans(hit.text, index.recipe)


def _stored(index: Index, hits: Sequence[Hit], spans: Spans) -> list[Doubles]:
    if not hits:
        return []
    made = (index.recipe.fingerprint, index.recipe.late)
    ids = [
        [passage_id(hit.document, hit.row[DIGEST], 0, start, end, *made) for start, end in own]
        for hit, own in zip(hits, spans, strict=True)
    ]
    got = index.store.get(SENTENCES, ids=sorted({id_ for own in ids for id_ in own}), embeddings=True)
    vectors = dict(zip(got.ids, np.asarray(got.vectors, np.float64), strict=True))
    return [np.stack([vectors[id_] for id_ in own]) for own in ids]


def _made(embedder: Embedder, hit: Hit, spans: Sequence[tuple[int, int]]) -> Doubles:
    inside = [(start - hit.start, end - hit.start) for start, end in spans]
    if embedder.reads_words:
        vectors = embedder.encode_words(hit.text, inside)
    else:
        vectors = embedder.encode_document([hit.text[start:end] for start, end in inside], show_progress=False)
    return np.asarray(vectors, np.float64)
