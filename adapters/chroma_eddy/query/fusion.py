"""`Fusion`: hybrid search; candidates by vectors and by keywords, each with both true scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.hits import Candidates
from chroma_eddy.query.options import KEYWORD_SCALE, TYPED_AMONG, TYPED_POWER, TYPED_SCALE, Filter, Query, conjunction
from chroma_eddy.query.ranking import Standardiser, cosines, reciprocal_rank_fusion
from chroma_eddy.rows.schema import DIGEST
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import MAIN
from chroma_eddy.storage.pages import Rows
from chroma_eddy.storage.vectors import ROW
from chroma_eddy.types import Highlight, Hit, WordMatch
from chroma_eddy.words.bm25 import Restriction, Scored
from chroma_eddy.words.operators import Asked
from eddy_embed.integrations.documents import DOCUMENT
from eddy_embed.utils.arrays import Doubles

Numbers = TypeVar("Numbers", float, Doubles)


class Fusion:
    """One question's scores by vectors and by keywords; the question's vector has the shape (dimension,)."""

    def __init__(self, index: IndexCore, vector: Doubles, question: str, query: Query) -> None:
        """Read what the keyword index and a sample of the vectors say about the whole library."""
        asked = Asked.of(question).text
        self._index, self._vector, self._query, self._typed = index, vector, query, asked.casefold().split()
        self._keywords = index.words.current()
        self._terms = self._keywords.terms.of_question(asked)
        self._idf = {term: self._keywords.weight(term) for term in self._terms}
        self._weights = {term: repeats * self._idf[term] for term, repeats in Counter(self._terms).items()}
        self._length = math.sqrt(sum(weight**2 for weight in self._weights.values())) or math.inf
        self._near = Standardiser.of(index.sample_vectors() @ vector / np.linalg.norm(vector))

    def candidates(self, nearest: Sequence[str], filters: Sequence[Filter]) -> Candidates:
        """The nearest passages, by their ids, and those with the highest BM25, by both scores, best first.

        Raises:
            ForeignCollection: A passage is among the vectors or among the keywords alone: another process is writing
                it, or something else has changed it.
        """
        query = self._query
        by_bm25: list[str] = []
        if query.alpha < 1:
            by_bm25 = list(self._keywords.best(self._terms, query.candidates, self._restrictions(filters)))
        scores = self._scores(list(dict.fromkeys([*nearest, *by_bm25])))
        if not scores:
            return Candidates([])
        ids, scored = list(scores), list(scores.values())
        near = self._near(cosines(self._vector, self._vectors_of(ids, [score.vector for score in scored])))
        bm25 = np.array([score.bm25 for score in scored])
        if query.fusion == "ranks":
            by_vectors = [ids[at] for at in np.argsort(-near, kind="stable") if ids[at] in set(nearest)]
            ranks = reciprocal_rank_fusion([by_vectors, [id_ for id_ in by_bm25 if id_ in scores]])
            joined = np.array([ranks[id_] for id_ in ids])
        else:
            joined = self._joined(near, bm25)
            first = np.argsort(-joined, kind="stable")[: max(TYPED_AMONG, query.chosen_from)]
            joined[first] += self._as_typed([ids[at] for at in first])
        order = np.argsort(-joined, kind="stable").tolist()
        pieces = frozenset(id_ for id_, score in scores.items() if not score.digest)
        return Candidates([ids[at] for at in order], joined[order], bm25[order], near[order], pieces)

    def _scores(self, ids: Sequence[str]) -> dict[str, Scored]:
        """BM25 of passages; 0 of a piece whose keywords are yet to be written."""
        scores = self._keywords.scores(self._terms, ids)
        missing = self._index.store.get(MAIN, ids=[id_ for id_ in ids if id_ not in scores], metadatas=True)
        for id_, row in zip(missing.ids, missing.metadatas, strict=True):
            if row.get(DIGEST) != "":
                raise ForeignCollection(
                    f"row {id_!r} of index {self._index.name!r} has no words: something else has written it; call "
                    "check()"
                )
            scores[id_] = Scored(0.0, "", row.get(ROW, -1))
        return {id_: scores[id_] for id_ in ids if id_ in scores}

    def _vectors_of(self, ids: Sequence[str], numbers: Sequence[int]) -> Doubles:
        """Vectors of passages, by the numbers that the keyword index has of them."""
        rows = Rows(list(ids), [{ROW: number} for number in numbers], [], np.zeros((0, 0), np.float32))
        return self._index.store.vectors_of(MAIN, rows).astype(np.float64)

    def with_matches(self, hits: Sequence[Hit]) -> list[Hit]:
        """Add the places of the question's words, and the share of its information that passage and headings have."""

        def matched(hit: Hit) -> Hit:
            matches = tuple(
                WordMatch(hit.start + term.start, hit.start + term.end, term.text, self._idf[term.text])
                for term in self._keywords.terms(hit.text)
                if term.text in self._idf
            )
            headings = (term.text for term in self._keywords.terms(hit.headings))
            shared = self._information([*headings, *(match.term for match in matches)])
            return replace(hit, matches=matches, coverage=shared / (sum(self._weights.values()) or math.inf))

        return [matched(hit) for hit in hits]

    def with_scored_sentences(self, hits: Sequence[Hit]) -> list[Hit]:
        """Score the sentences of hits as passages are: by their cosine and the words that they share."""

        def scored(sentence: Highlight, hit: Hit) -> Highlight:
            terms = [match.term for match in hit.matches if sentence.start <= match.start < sentence.end]
            near = float(self._near(np.array([sentence.cosine]))[0])
            return replace(sentence, score=self._joined(near, self._information(terms)))

        return [replace(hit, sentences=tuple(scored(sentence, hit) for sentence in hit.sentences)) for hit in hits]

    def _joined(self, near: Numbers, bm25: Numbers) -> Numbers:
        """Both scores as one: deviations of the cosine, and BM25 over the length of the question's weights."""
        return self._query.alpha * near + (1 - self._query.alpha) * KEYWORD_SCALE * bm25 / self._length

    def _as_typed(self, ids: Sequence[str]) -> Doubles:
        """What passages gain by the share of the question's words that stand there as they were typed.

        Terms are cut at signs and reduced to stems, which loses what names such as `--assume-clean` and `?LAST` say.
        """
        if not self._typed or self._query.alpha == 1:
            return np.zeros(len(ids))
        rows = self._index.store.get(MAIN, ids=ids, documents=True)
        texts = {id_: text.casefold() for id_, text in zip(rows.ids, rows.texts, strict=True)}
        shares = [np.mean([word in texts.get(id_, "") for word in self._typed]) for id_ in ids]
        return (1 - self._query.alpha) * TYPED_SCALE * np.array(shares) ** TYPED_POWER

    def _information(self, terms: Iterable[str]) -> float:
        """Sum of the weights of the question's terms that are among some."""
        return sum(self._weights.get(term, 0.0) for term in dict.fromkeys(terms))

    def _restrictions(self, filters: Sequence[Filter]) -> list[Restriction]:
        """Chroma's conditions for the keyword index: on documents and versions as they are, others by ids of rows."""
        query = self._query
        restrictions: list[Restriction] = []
        others: list[Filter] = []
        for condition in filters:
            if (among := _values(condition, DOCUMENT, "$in")) is not None:
                restrictions.append(Restriction("document", among))
            elif (hidden := _values(condition, DIGEST, "$nin")) is not None:
                restrictions.append(Restriction("digest", hidden, excluded=True))
            else:
                others.append(condition)
        if others or query.where_document or query.ids is not None:
            with translated_errors(self._index.store.place):
                got = self._index.store.collection(MAIN).get(
                    ids=None if query.ids is None else list(query.ids),
                    where=conjunction(others),
                    where_document=query.where_document,  # type: ignore[arg-type]
                    include=[],
                )
            restrictions.append(Restriction("id", got["ids"]))
        return restrictions


def _values(condition: Filter, name: str, operator: str) -> Sequence[str] | None:
    """The values of a condition that says nothing but `{name: {operator: values}}`; None for another."""
    values: Sequence[str] | None = condition[name].get(operator) if isinstance(condition.get(name), dict) else None
    return values if condition == {name: {operator: values}} else None
