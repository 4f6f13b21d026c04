"""Search: vectors and keywords under filters, fused, diversified, re-ranked, and with highlighted sentences."""

from __future__ import annotations

import math
import warnings
from collections import Counter, abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

import numpy as np

from chroma_eddy.collection import Collection
from chroma_eddy.database import translated_errors
from chroma_eddy.keywords import Key, KeywordIndex, ParsedQuestion, Scored
from chroma_eddy.rows import (
    Filter,
    RowBatch,
    StoredDocument,
    check_conditions,
    conjunction,
    fields,
    sentence_spans,
    user_metadata,
)
from chroma_eddy.storage import DOCUMENTS, MAIN
from chroma_eddy.types import DIGEST, VECTOR, ForeignCollection, Highlight, Hit, WordMatch, damaged, under_headings
from eddy_embed.encoding.validation import check_count, check_kind, check_seconds
from eddy_embed.errors import FingerprintMismatch, InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT, END, HEADINGS, START, passage_id
from eddy_embed.integrations.shared import open_reranker
from eddy_embed.utils.arrays import Doubles, Floats, unit

if TYPE_CHECKING:
    from eddy_embed import Embedder, Reranker  # import torch

Unit = Literal["passage", "sentence", "document"]
ALPHA = 0.5  # weight of the vectors in hybrid search
KEYWORD_SCALE, TYPED_SCALE, TYPED_POWER = 1.5, 4.0, 8
"""Standard deviations of the cosine that count as much as a BM25, of passage and document (`of_documents`), as high as
the Euclidean length of the question's weights (so that it counts for more in a long question, which tells more), and as
a question that stands in a passage word for word; and the power that leaves little of the latter where a word is
missing. Chosen with `ALPHA` on manuals, abstracts and stories, with vectors of token embeddings, layers and an encoder.
"""
SHARE_SCALE, DEVIATIONS, ALONE_AT = 8.0, 20.0, 3.6
"""Constants of `score_of`: the slope of its logistic; the deviations of a cosine that count as much as all of the
question's information; and, of vectors alone, the deviations of an even chance. Rounded from fits on every second
question to manuals and abstracts, and on others; docs/search.md has what they let pass of the rest.
"""
_LEAST, _ROUNDING = 1e-3, 1e-6  # least deviations, of unrelated cosines and the library's, that are told from rounding
_BREADTHS = 3, 10  # for each wanted row, best rows of which Chroma is asked which meet a condition: first, then
_MOST_ASKED = 1000  # wanted rows up to which that is so: Chroma takes 32,766 values
RERANK_FROM = 10  # default of how many of the best hits the language model re-ranks
_TYPED_AMONG = 30  # fewest of the best candidates in which the question's words are looked for as they were typed
_SPREAD = 5  # best passages of a document, by BM25 among the candidates, that raise each other's
_CANDIDATES, _MMR_CANDIDATES = 100, 20  # default of `fetch_k`, in hybrid search and of MMR by vectors
_PASSAGES_PER_SENTENCE = 4  # passages that are looked through for each sentence that is asked for
Numbers = TypeVar("Numbers", float, Doubles)
Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Query:
    """Options of a query, as `Index.query` documents them, and `ids`, the only rows to look at; None: all."""

    k: int
    where: Filter | None = None
    where_document: Filter | None = None
    documents: Sequence[str] | None = None
    unit: Unit = "passage"
    alpha: float | None = None
    mmr: bool = False
    fetch_k: int | None = None
    lambda_mult: float = 0.5
    sentences: bool = False
    rerank: Reranker | None = None
    rerank_from: int | None = None
    rerank_seconds: float | None = None
    progress: Callable[[int, int, str], None] | None = None
    ids: Sequence[str] | None = None

    def check(self) -> None:
        """Refuse options out of range and combinations that do not exist."""
        for name in ("k", "fetch_k", "rerank_from"):
            check_count(name, getattr(self, name))
        check_seconds("rerank_seconds", self.rerank_seconds)
        check_conditions(self.where, self.where_document)
        for name, share in (("lambda_mult", self.lambda_mult), ("alpha", self.alpha)):
            if share is not None and not 0 <= share <= 1:
                meaning = "keywords alone, and 1, vectors alone" if name == "alpha" else "and 1"
                raise InvalidParameter(f"{name}={share!r} must lie between 0, {meaning}")
        documents = () if self.documents is None else self.documents
        is_list = isinstance(documents, abc.Collection) and not isinstance(documents, str)
        if not is_list or not all(isinstance(id_, str) for id_ in documents):
            raise InvalidParameter(f"documents={documents!r:.80} must be a list of ids, which are strings")
        if self.unit not in get_args(Unit):
            raise InvalidParameter(f"unit={self.unit!r:.80} is unknown; choose one of {', '.join(get_args(Unit))}")
        of_passages = self.sentences or self.rerank is not None or self.where_document is not None
        if self.unit != "passage" and (of_passages or self.alpha not in (None, 1)):
            raise InvalidParameter(
                f"sentences=, rerank=, alpha= and where_document= are of passages, not of unit={self.unit!r}: leave "
                "unit out, or these"
            )
        if self.rerank is not None and self.mmr:
            raise InvalidParameter("rerank=True sorts passages anew, and mmr=True chooses other ones: leave one out")
        if self.rerank is None and (self.rerank_from, self.rerank_seconds, self.progress) != (None, None, None):
            raise InvalidParameter("rerank_from=, rerank_seconds= and progress= belong to rerank=True; leave them out")

    def resolved(self, too_many: bool, asks: bool) -> Query:
        """Return the query with its `alpha`; `asks`: whether the text of the question is known.

        InvalidParameter if keywords are asked for, and there are too many rows to read them, or no text.
        """
        if self.alpha is None:
            return replace(self, alpha=ALPHA if self.unit == "passage" and asks and not too_many else 1.0)
        if self.alpha < 1 and (too_many or not asks):
            full = "the index has too many rows without a folder: leave alpha out, or keep the index in a folder"
            why = full if asks else "needs the question's text"
            raise InvalidParameter(f"alpha={self.alpha} searches by keywords too, and {why}")
        return self

    @property
    def candidates(self) -> int:
        """Number of rows to fetch, the nearest and, in hybrid search, those with the highest BM25."""
        return max(self.k, self.fetch_k or _CANDIDATES) if self.alpha != 1 else self.chosen_from

    @property
    def chosen_from(self) -> int:
        """Number of the best rows among which hits are chosen."""
        return max(self.k, self.fetch_k or _MMR_CANDIDATES) if self.mmr else self.k


def score_of(share: float | None, deviations: float) -> float:
    """Return how likely a text is about a question, from 0 to 1, by the `share` of its information (`Hit.coverage`).

    None: in search by vectors alone. `deviations` are the cosine's above the mean of the model's unrelated pairs.
    """
    logit = deviations - ALONE_AT if share is None else SHARE_SCALE * (share + deviations / DEVIATIONS - 0.5)
    return 0.5 * (1 + math.tanh(logit / 2))  # the logistic function, which overflows nowhere


def _never_rising(hits: Sequence[Hit]) -> list[Hit]:
    """Lower the scores that rise along the hits, where their order follows more than the scores."""
    lowest = list(accumulate((hit.score for hit in hits), min))
    return [replace(hit, score=score) for hit, score in zip(hits, lowest, strict=True)]


def search(
    index: Collection, vectors: Doubles, questions: Sequence[str] | None, query: Query, fingerprint: str | None
) -> list[list[Hit]]:
    """Find each question's hits, best first, as `Index.search` says."""
    query.check()
    width = index.dimension or vectors.shape[-1]
    if vectors.shape[-1] != width or not np.isfinite(vectors).all() or not vectors.any(-1).all():
        raise InvalidParameter(
            f"vectors of questions have the shape {vectors.shape}, or hold NaN or infinity, or only zeros; index "
            f"{index.name!r} takes finite ones, {width} wide, of its own embedder"
        )
    texts = questions or [""] * len(vectors)

    def answer() -> list[list[Hit]]:
        if fingerprint not in (None, index.settings.fingerprint):
            raise FingerprintMismatch(
                f"The questions to index {index.name!r} were embedded by another embedder than its documents.\n"
                f"Fingerprint of the index: {index.settings.fingerprint}, of the questions: {fingerprint}; embed the "
                "questions again, with index.embedder"
            )
        if query.unit == "document" and index._holds_framework_rows:
            raise InvalidParameter(
                f"index {index.name!r} holds rows that a framework has cut, of which there are no whole documents: "
                "search passages"
            )
        too_many = index.keywords.too_many
        if too_many and questions is not None and query.alpha is None and not index.has_warned:
            index.has_warned = True
            what = "has too many rows for keyword search without a folder, and is searched by vectors alone"
            warnings.warn(f"index {index.name!r} {what}: keep it in a folder, or give alpha=1 to say so", stacklevel=2)
        stage = query.resolved(too_many, questions is not None)
        if query.rerank is not None:
            stage = replace(stage, k=max(query.k, query.rerank_from or RERANK_FROM))
        return [_Answer(index, vector, text, stage).hits() for vector, text in zip(vectors, texts, strict=True)]

    nothing: list[list[Hit]] = [[] for _ in vectors]
    answers = index.read(answer, nothing)
    # Not within `read`, which may keep writers waiting.
    return [_reranked(text, hits, query) for text, hits in zip(texts, answers, strict=True)]


class _Answer:
    """One question's search; the question's vector has the shape (dimension,)."""

    def __init__(self, index: Collection, vector: Doubles, question: str, query: Query) -> None:
        self._index, self._storage, self._vector, self._query = index, index.storage, vector, query
        known = index.storage.known_metadata  # with cosines of questions with passages about other things
        self._unrelated = float(known["eddy_unrelated_mean"]), float(known["eddy_unrelated_deviation"])
        self._keywords: QuestionTerms | None = None
        if query.alpha != 1:
            parsed = ParsedQuestion.of(question)
            self._keywords = QuestionTerms(index.keywords.current(), parsed.text)
            on_text = conjunction([query.where_document, *parsed.conditions])
            self._query = replace(query, where_document=on_text)
            sample = index._sample_vectors() @ vector / np.linalg.norm(vector)
            self._mean, self._deviation = (float(sample.mean()), float(sample.std())) if len(sample) else (0.0, 0.0)

    def hits(self) -> list[Hit]:
        """Find the hits, best first, all of versions that their documents' rows name."""
        query = self._query
        if query.unit == "sentence":
            return self._sentence_hits()
        kind = DOCUMENTS if query.unit == "document" else MAIN
        if query.ids is not None:  # Chroma refuses ids that nothing has, and is slow with ids and conditions
            conditions = query.where or query.where_document
            there = {*(self._meeting(kind) if conditions else self._storage.get(kind, ids=query.ids).ids)}
            ids = [id_ for id_ in dict.fromkeys(query.ids) if id_ in there]
            query = self._query = replace(query, ids=ids, where=None, where_document=None)
        if query.ids == [] or (query.documents is not None and not query.documents):
            return []  # no row can meet the conditions, which Chroma would not take
        hidden = sorted(self._index._hidden_versions()) if kind == MAIN else [""]  # of no version: a damaged document
        nearest, scored = self._candidates(kind, hidden)
        if self._keywords:
            hits = self._fused(self._keywords, nearest, scored)
        else:
            hits = self._checked(kind, self._fetch(kind, nearest), query.chosen_from)
            hits.sort(key=lambda hit: -hit.cosine)
        hits = [replace(hit, score=self._score(hit.coverage, hit.cosine)) for hit in hits]
        if query.mmr and hits:
            rows = RowBatch([hit.id for hit in hits], [dict(hit.row) for hit in hits])
            hits = self._diversified(hits, self._storage.vectors_of(kind, rows))
        else:
            hits = _never_rising(hits)
        if query.sentences:
            return [replace(hit, sentences=tuple(marks)) for hit, marks, _ in self._marks(hits)]
        return hits

    def _score(self, share: float | None, cosine: float) -> float:
        mean, deviation = self._unrelated
        return score_of(share, (cosine - mean) / max(deviation, _LEAST))

    # --- Candidates

    def _candidates(self, kind: str, hidden: Sequence[str]) -> tuple[list[str], dict[str, Scored]]:
        """Return the nearest rows, and those with the highest BM25 in hybrid search, that meet the conditions.

        Chroma alone can tell what meets a condition on metadata or texts. It is asked about the best rows; about all
        rows, which takes longer, only if too few of these meet the conditions. Where the best rows were enough, the
        BM25 of the nearest is returned, too.
        """
        query, keywords, wanted = self._query, self._keywords, self._query.candidates
        if keywords is None:
            return self._nearest(kind, hidden), {}
        best = partial(keywords.index.best, keywords.terms, hidden=hidden)
        among: dict[Key, Sequence[str]] = {"document": list(query.documents)} if query.documents is not None else {}
        if query.ids is not None:
            among["id"] = list(query.ids)
        if query.where or query.where_document:
            may_ask = wanted <= _MOST_ASKED and self._storage.vectors is not None
            for broad in (breadth * wanted for breadth in _BREADTHS if may_ask):
                near, scored = self._nearest(kind, hidden, broad), best(broad, among)
                known = scored | keywords.index.scores(keywords.terms, [id_ for id_ in near if id_ not in scored])
                numbers = sorted({score.vector for score in known.values()})
                meeting = set(self._meeting(kind, {VECTOR: {"$in": numbers}})) if numbers else set[str]()
                nearest, first = ([id_ for id_ in ids if id_ in meeting][:wanted] for ids in (near, scored))
                pairs = (nearest, near), (first, scored)
                enough = all(len(chosen) == wanted or len(ids) < broad for chosen, ids in pairs)
                if enough and known.keys() >= set(near):  # a framework's row may not be among the keywords yet
                    return nearest, {id_: known[id_] for id_ in (*first, *nearest)}
                if len(meeting) * _BREADTHS[-1] < len(known):  # more of the best rows would be too few, too
                    break
            among["id"] = self._meeting(kind)
        return self._nearest(kind, hidden), best(wanted, among)

    def _meeting(self, kind: str, among: Filter | None = None) -> list[str]:
        """Return which rows, `among` those that meet another condition, meet the conditions on metadata and texts."""
        # Not by `ids`, each of which Chroma compares with every row that meets the conditions.
        where, on_text = conjunction([among, self._query.where]), cast("Any", self._query.where_document)
        with translated_errors(self._storage.place):
            got = self._storage.collection(kind).get(where=where, where_document=on_text, include=[])
        return list(got["ids"])

    def _nearest(self, kind: str, hidden: Sequence[str], broad: int = 0) -> list[str]:
        """Return the nearest rows that are of no hidden version and meet the conditions, nearest first.

        If `broad`, return that many, whatever the conditions on metadata and texts.
        """
        query = self._query
        if query.alpha == 0:
            return []
        among = None if query.documents is None else {DOCUMENT: {"$in": list(query.documents)}}
        version = {DIGEST: {"$nin": list(hidden)}} if hidden else None
        with translated_errors(self._storage.place):
            got = self._storage.collection(kind).query(
                query_embeddings=np.asarray(self._vector, np.float32)[None],
                n_results=int(broad or query.candidates),
                ids=None if query.ids is None else list(query.ids),
                include=[],
                where=conjunction([version, among, None if broad else query.where]),
                where_document=None if broad else cast("Any", query.where_document),
            )
        return got["ids"][0]

    # --- Candidates become hits

    def _fused(self, keywords: QuestionTerms, nearest: Sequence[str], scored: dict[str, Scored]) -> list[Hit]:
        """Return the best of the nearest passages and of those with the highest BM25, by both scores.

        ForeignCollection if a passage is among the vectors or among the keywords alone: somebody is writing it.
        """
        query = self._query
        others = [id_ for id_ in nearest if id_ not in scored]
        scored |= keywords.index.scores(keywords.terms, others)
        scored |= self._without_keywords([id_ for id_ in others if id_ not in scored])
        droppable = {id_ for id_, score in scored.items() if not score.digest}
        if droppable and self._storage.vectors is None:  # others delete rows of a server without a word
            gone = droppable - set(self._storage.get(MAIN, ids=list(droppable)).ids)
            scored = {id_: score for id_, score in scored.items() if id_ not in gone}
        if not scored:
            return []
        ids, bm25 = list(scored), np.array([score.bm25 for score in scored.values()])
        rows = RowBatch(ids, [{VECTOR: score.vector} for score in scored.values()])
        deviations = self._deviations(cosines(self._vector, self._storage.vectors_of(MAIN, rows)))
        joined = self._joined(deviations, bm25 + of_documents(scored.values()))
        first = np.argsort(-joined, kind="stable")[: max(_TYPED_AMONG, query.chosen_from)].tolist()
        fetched = self._fetch(MAIN, [ids[at] for at in first], droppable)
        number = {id_: at for at, id_ in enumerate(ids)}
        for id_, text in zip(fetched.ids, fetched.texts, strict=True):
            joined[number[id_]] += (1 - (query.alpha or 0.0)) * TYPED_SCALE * keywords.share_typed(text) ** TYPED_POWER
        order = sorted(range(len(fetched.ids)), key=lambda at: -joined[number[fetched.ids[at]]])
        hits = []
        for hit in self._checked(MAIN, fetched.take(order), query.chosen_from):
            fused, score, deviation = (float(column[number[hit.id]]) for column in (joined, bm25, deviations))
            hits.append(replace(keywords.matched(hit), fused=fused, bm25=score, deviation=deviation))
        return hits

    def _without_keywords(self, ids: Sequence[str]) -> dict[str, Scored]:
        """Return a BM25 of 0 for framework's rows whose keywords are yet to be written; refuse other rows."""
        rows = self._storage.get(MAIN, ids=ids, metadatas=True)
        _refuse_foreign(rows)
        for id_, row in zip(rows.ids, rows.metadatas, strict=True):
            if row[DIGEST]:
                raise ForeignCollection(
                    f"row {id_!r} of index {self._index.name!r} is not in the keyword index: something else has "
                    "written it; call check()"
                )
        columns = zip(rows.ids, rows.metadatas, strict=True)
        return {id_: Scored(0.0, str(row[DOCUMENT]), "", row.get(VECTOR, -1)) for id_, row in columns}

    def _deviations(self, cosine: Numbers) -> Numbers:
        """Return standard deviations above the mean of a sample of the library's passages; 0 if these are all alike."""
        above: Numbers = cosine - self._mean
        return above / (self._deviation if self._deviation > _ROUNDING else math.inf)

    def _joined(self, deviations: Numbers, bm25: Numbers) -> Numbers:
        """Fuse deviations of the cosine, and BM25 over the length of the question's weights."""
        assert self._keywords is not None
        weight = self._query.alpha or 0.0
        return weight * deviations + (1 - weight) * KEYWORD_SCALE * bm25 / self._keywords.length

    def _fetch(self, kind: str, ids: Sequence[str], droppable: Iterable[str] = ()) -> RowBatch:
        """Fetch rows, in the order of their ids, with metadata and, of passages, texts.

        ForeignCollection if a row is gone that is not `droppable`, or was not written by the index.
        """
        rows = self._storage.get(kind, ids=ids, metadatas=True, documents=kind == MAIN)
        _refuse_foreign(rows)
        if gone := set(ids) - set(rows.ids) - set(droppable):
            raise ForeignCollection(
                f"row {min(gone)!r} of index {self._index.name!r} is gone: something else has deleted it; call check()"
            )
        number = {id_: at for at, id_ in enumerate(rows.ids)}
        return rows.take([number[id_] for id_ in ids if id_ in number])

    def _checked(self, kind: str, rows: RowBatch, most: int) -> list[Hit]:
        """Return the first rows, at most so many, as hits with true cosines, of versions that documents' rows name.

        ForeignCollection if there are fewer, because rows of other versions were left out.
        """
        index, hits, left_out = self._index, list[Hit](), ""
        for start in range(0, len(rows.ids), most):
            part = rows.take(range(start, min(start + most, len(rows.ids))))
            if kind == DOCUMENTS:
                documents = StoredDocument.by_id(part)
                part = replace(part, texts=[document.text for document, _ in index._documents_of(part)])
            else:
                documents = index._entries(sorted({row[DOCUMENT] for row in part.metadatas if row[DIGEST]}))
            near = cosines(self._vector, self._storage.vectors_of(kind, part)).tolist()
            for id_, row, text, cosine in zip(part.ids, part.metadatas, part.texts, near, strict=True):
                document = documents.get(row[DOCUMENT])
                if not row[DIGEST] or (document is not None and document.digest == row[DIGEST]):
                    hits.append(_hit(id_, row, text, cosine, document))
                else:
                    left_out = row[DOCUMENT]
            if len(hits) >= most:
                return hits[:most]
        if left_out:
            raise damaged(left_out, f"the version that {index.name + DOCUMENTS} names")
        return hits

    def _diversified(self, hits: Sequence[Hit], vectors: Floats) -> list[Hit]:
        """Choose hits by maximal marginal relevance of their vectors; fused scores take the range of their cosines."""
        similarity = np.array([hit.cosine for hit in hits])
        if self._keywords:
            scores = np.array([hit.fused for hit in hits])
            low, high = scores.min(), scores.max()
            share = (scores - low) / (high - low) if high > low else np.ones_like(scores)
            similarity = similarity.min() + share * (similarity.max() - similarity.min())
        order = mmr_order(similarity, unit(vectors.astype(np.float64)), self._query.k, self._query.lambda_mult)
        return [hits[at] for at in order]

    # --- Sentences

    def _sentence_hits(self) -> list[Hit]:
        """Find the nearest sentences of the nearest passages."""
        query, made = self._query, self._index.settings
        stage = replace(query, unit="passage", k=_PASSAGES_PER_SENTENCE * query.chosen_from, mmr=False)
        pairs = []
        for hit, marks, vectors in self._marks(_Answer(self._index, self._vector, "", stage).hits()):
            for mark, vector in zip(marks, vectors, strict=True):
                span = (hit.document, hit.row[DIGEST], 0, mark.start, mark.end)
                id_ = passage_id(*span, made.fingerprint, made.late)
                pairs.append((replace(hit, **{**vars(mark), "id": id_}), vector))
        nearest = sorted(pairs, key=lambda pair: -pair[0].cosine)[: query.chosen_from]
        hits = [hit for hit, _ in nearest]
        return self._diversified(hits, np.stack([vector for _, vector in nearest])) if query.mmr and hits else hits

    def _marks(self, hits: Sequence[Hit]) -> list[tuple[Hit, list[Highlight], Floats]]:
        """Return each hit with its sentences, scored as passages are, and their vectors, (sentences, dimension)."""
        marked = []
        sentences = read_sentences(self._index, [hit.row for hit in hits], [hit.text for hit in hits])
        for hit, (spans, vectors) in zip(hits, sentences, strict=True):
            sections, headings, marks = dict(fields(hit.row).get("sections", ())), hit.headings, list[Highlight]()
            near = zip(spans, cosines(self._vector, vectors).tolist(), strict=True)
            for at, ((start, end), cosine) in enumerate(near):
                first, last, headings = hit.start + start, hit.start + end, sections.get(at, headings)
                pages: dict[str, Any] = {**hit.pages.numbers(first, last), **hit.pages.labels(first, last)}
                fused, share = cosine, None
                if self._keywords:
                    terms = [match.term for match in hit.matches if first <= match.start < last]
                    share = self._keywords.share(terms)
                    fused = float(self._joined(self._deviations(cosine), self._keywords.information(terms)))
                scores = (cosine, self._score(share, cosine), fused)
                marks.append(Highlight(first, last, hit.text[start:end], *scores, headings, **pages))
            marked.append((hit, marks, vectors))
        return marked


def of_documents(scored: Iterable[Scored]) -> Doubles:
    """Return for each candidate the mean of its document's `_SPREAD` best BM25, shape (candidates,).

    A passage counts for more where others of its document share terms with the question, as the scenes of a story do.
    """
    scored, by_document = list(scored), dict[str, list[float]]()
    for row in scored:
        by_document.setdefault(row.document, []).append(row.bm25)
    means = {id_: sum(sorted(scores)[-_SPREAD:]) / _SPREAD for id_, scores in by_document.items()}
    return np.array([means[row.document] for row in scored])


class QuestionTerms:
    """A question's terms, and what the keyword index says they tell."""

    def __init__(self, index: KeywordIndex, question: str) -> None:
        """Weigh the terms of a question, without its operators, by their inverse document frequency."""
        self.index, self._typed = index, question.casefold().split()
        self.terms = index.terms.of_question(question)
        self._idf = {term: index.weight(term) for term in self.terms}
        self._weights = {term: repeats * self._idf[term] for term, repeats in Counter(self.terms).items()}
        self.length = math.sqrt(sum(weight**2 for weight in self._weights.values())) or math.inf
        """Euclidean length of the weights; infinite without any."""

    def information(self, terms: Iterable[str]) -> float:
        """Sum the weights of the question's terms that are among some."""
        return sum(self._weights.get(term, 0.0) for term in dict.fromkeys(terms))

    def share(self, terms: Iterable[str]) -> float:
        """Return the share of the question's information that is in some terms, from 0 to 1."""
        return self.information(terms) / (sum(self._weights.values()) or math.inf)

    def matched(self, hit: Hit) -> Hit:
        """Add the places of the question's words, and the share of its information that passage and headings have."""
        matches = tuple(
            WordMatch(hit.start + term.start, hit.start + term.end, term.text, self._idf[term.text])
            for term in self.index.terms(hit.text)
            if term.text in self._idf
        )
        terms = [*self.index.terms.texts(hit.headings), *(match.term for match in matches)]
        return replace(hit, matches=matches, coverage=self.share(terms))

    def share_typed(self, text: str) -> float:
        """Return the share of the question's words that stand in a text as they were typed.

        Terms are cut at signs and reduced to stems, which loses what names such as `--assume-clean` and `?LAST` say.
        """
        text = text.casefold()
        return float(np.mean([word in text for word in self._typed])) if self._typed else 0.0


def cosines(question: Doubles, vectors: Doubles | Floats) -> Doubles:
    """Return the cosines of a question's vector, shape (dimension,), with vectors of any length, (..., dimension)."""
    vectors = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(question)
    return np.asarray(vectors @ question / np.maximum(lengths, np.finfo(np.float64).tiny))


def mmr_order(similarity: Doubles, vectors: Doubles, k: int, balance: float) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): indices of `k` candidates in the order of choice.

    `similarity` to the question has the shape (candidates,), and the vectors, of length 1, (candidates, dimension).
    `balance` weighs it, the complement of `balance` the similarity to chosen candidates.
    """
    chosen: list[int] = []
    to_chosen = np.full(len(vectors), -np.inf)
    while len(chosen) < min(k, len(vectors)):
        gain = similarity if not chosen else balance * similarity - (1 - balance) * to_chosen
        gain = np.where(np.isin(np.arange(len(vectors)), chosen), -np.inf, gain)
        chosen.append(int(np.argmax(gain)))
        to_chosen = np.maximum(to_chosen, vectors @ vectors[chosen[-1]])
    return chosen


def _refuse_foreign(rows: RowBatch) -> None:
    for id_, row in zip(rows.ids, rows.metadatas, strict=True):
        if DOCUMENT not in row:
            raise ForeignCollection(
                f"row {id_!r:.80} was put into a collection of the index by something else, and nobody knows what made "
                "its vector; delete it: index.collection.delete(ids=[...])"
            )


def _hit(id_: str, row: dict[str, Any], text: str, cosine: float, document: StoredDocument | None) -> Hit:
    """Return a row as a hit; `document` is None for a framework's row."""
    start = row.get(START, 0)
    end = row.get(END, start + len(text))
    pages: dict[str, Any] = {name: row[name] for name in ("page", "last_page") if name in row}
    if document is not None:
        pages |= {"pages": document.pages, **document.pages.labels(start, end)}
    place = (start, end, text, cosine, 0.0, cosine, str(row.get(HEADINGS, "")))
    return Hit(*place, id=id_, document=row[DOCUMENT], metadata=user_metadata(row), row=row, **pages)


def read_sentences(
    index: Collection, rows: Sequence[Mapping[str, Any]], texts: Sequence[str]
) -> list[tuple[Spans, Floats]]:
    """Return the spans of each row's sentences, from its start, and their vectors, shape (sentences, dimension).

    Vectors are stored where a sentence takes a pass, and read out of the passage elsewhere.
    """
    stored = index.storage.vectors
    sentences: list[tuple[Spans, Floats | None]] = []
    to_read: list[tuple[str, Spans]] = []
    for row, text in zip(rows, texts, strict=True):
        of_row = fields(row)
        spans = sentence_spans(row, text, index.settings)
        if "vectors" in of_row and stored is not None:
            numbers = range(of_row["vectors"], of_row["vectors"] + len(spans))
            sentences.append((spans, stored.sentences.read(numbers)))
            continue
        before = str(of_row.get("before", ""))
        before = before[len(before.rstrip()) :]  # so that the first token is the one that the document has there
        to_read.append((before + text, [(len(before) + start, len(before) + end) for start, end in spans]))
        sentences.append((spans, None))
    read = iter(_read_out(index.embedder, to_read) if to_read else ())
    return [(spans, next(read) if vectors is None else vectors) for spans, vectors in sentences]


def _read_out(embedder: Embedder, passages: Sequence[tuple[str, Spans]]) -> list[Floats]:
    """Return vectors of sentences out of a pass over each text, or each by itself for a method that reads one token."""
    if not embedder.can_embed_words:
        lines = [text[start:end] for text, spans in passages for start, end in spans]
        vectors = embedder.encode_document(lines, show_progress=False)
        return np.split(vectors, np.cumsum([len(spans) for _, spans in passages])[:-1])
    try:
        return embedder.encode_words([text for text, _ in passages], [spans for _, spans in passages])
    except InvalidParameter:  # the tokenizer drops all characters of a sentence: its vector is the passage's
        return [np.concatenate([_word_or_whole(embedder, text, span) for span in spans]) for text, spans in passages]


def _word_or_whole(embedder: Embedder, text: str, span: tuple[int, int]) -> Floats:
    try:
        return embedder.encode_words(text, [span])
    except InvalidParameter:
        return embedder.encode_document([text], show_progress=False)


def reranker_of(index: Collection, requested: Any) -> Reranker | None:
    """Return the reranker of a query: True is the model of the index, which stays loaded as long as that is open.

    InvalidParameter if it is none, or the index shares a loaded model, which has no name to open it by.
    """
    if requested is False:
        return None
    from eddy_embed import Reranker

    check_kind("rerank", requested, bool | Reranker, "True, False or a Reranker")
    if requested is not True:
        reranker: Reranker = requested
        return reranker
    if index.embedder.shares_model:
        raise InvalidParameter(
            "rerank=True opens the index's model by its name, and this index shares a loaded one: pass "
            "rerank=Reranker(model, tokenizer=tokenizer), which shares it too"
        )
    index.reranker = open_reranker(index.embedder.model_name, device=index.embedder.device)
    return index.reranker


def _reranked(question: str, hits: list[Hit], query: Query) -> list[Hit]:
    """Sort the best hits by score and likelihood together; that of a passage that is not read counts as the mean.

    The first `rerank_from` are read, or those of them that `rerank_seconds` leaves time for.
    """
    if query.rerank is None or not hits:
        return hits
    texts = [under_headings(hit.text, hit.headings) for hit in hits[: query.rerank_from or RERANK_FROM]]
    likelihoods = query.rerank.scores(
        question, texts, seconds=query.rerank_seconds, show_progress=False, progress=query.progress
    )
    shown = [None if np.isnan(score) else float(score) for score in query.rerank.rerank_scores(likelihoods)]
    shown += [None] * (len(hits) - len(texts))
    joined = query.rerank.joined(np.array([hit.fused for hit in hits]), likelihoods)
    order = np.argsort(-joined, kind="stable")[: query.k].tolist()
    return _never_rising([replace(hits[at], fused=float(joined[at]), rerank_score=shown[at]) for at in order])
