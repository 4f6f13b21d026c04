"""`Fusion`: meaning and words together; candidates of both sides, each with both true scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.hits import check_row, make_hit
from chroma_eddy.query.options import Filter, Query, conjunction
from chroma_eddy.query.ranking import Standardiser, cosines, reciprocal_rank_fusion
from chroma_eddy.rows.schema import DIGEST
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import MAIN
from chroma_eddy.types import Highlight, Hit, WordMatch
from chroma_eddy.words.bm25 import Restriction
from eddy_embed.integrations import DOCUMENT, Doubles


class Fusion:
    """One question's scores by meaning and by words; the question's vector has the shape (dimension,)."""

    def __init__(self, index: IndexCore, vector: Doubles, question: str, query: Query) -> None:
        """Read what the words and a sample of the vectors say about the whole library."""
        self._index, self._vector, self._query = index, vector, query
        self._words = index.words.current()
        self._terms = self._words.terms.of_question(question)
        self._weights = {term: self._words.passages.weight(term) for term in self._terms}
        self._near = Standardiser.of(cosines(vector, index.sample_vectors()))

    def hits(self, nearest: Sequence[Hit], filters: Sequence[Filter]) -> list[Hit]:
        """The nearest passages and those that share words with the question, by both, best first.

        Raises:
            ForeignCollection: A passage is among the vectors or among the words alone: another process is writing it,
                or something else has changed it.
        """
        query, terms = self._query, self._terms
        by_words = self._words.best(terms, query.candidates, self._restrictions(filters)) if query.alpha < 1 else []
        known = {hit.id for hit in nearest}
        hits = [*nearest, *self._read_hits([id_ for id_ in by_words if id_ not in known])]
        there = {hit.id for hit in hits}
        by_words = [id_ for id_ in by_words if id_ in there]
        if not hits:
            return []
        try:
            scores = self._words.scores(terms, [hit.id for hit in hits], [hit.row[DIGEST] for hit in hits])
        except KeyError as error:
            raise ForeignCollection(
                f"row {error} of index {self._index.name!r} has no words: something else has written it; call check()"
            ) from None
        near = self._near(np.array([hit.cosine for hit in hits]))
        if query.fusion == "ranks":
            ranks = reciprocal_rank_fusion([[hit.id for hit in nearest], by_words])
            meant, worded = np.array([ranks[hit.id] for hit in hits]), np.zeros(len(hits))
        else:
            meant, worded = query.alpha * near, (1 - query.alpha) * scores.standardised
        order = np.argsort(-(meant + worded), kind="stable")
        return [
            replace(
                hits[at], score=float(meant[at] + worded[at]), bm25=float(scores.bm25[at]), deviation=float(near[at])
            )
            for at in order
        ]

    def with_matches(self, hits: Sequence[Hit]) -> list[Hit]:
        """Add the places of the question's words, and their share of its information."""
        total = sum(self._weights.values())
        found = []
        for hit in hits:
            matches = tuple(
                WordMatch(hit.start + term.start, hit.start + term.end, term.text, self._weights[term.text])
                for term in self._words.terms(hit.text)
                if term.text in self._weights
            )
            coverage = _information(matches) / total if total else 0.0
            found.append(replace(hit, matches=matches, coverage=coverage))
        return found

    def with_scored_sentences(self, hits: Sequence[Hit]) -> list[Hit]:
        """Score the sentences of hits as passages are: by their cosine and the words that they share."""
        alpha, spread = self._query.alpha, self._words.passages.spread(self._terms) or 1.0

        def scored(sentence: Highlight, hit: Hit) -> Highlight:
            own = [match for match in hit.matches if sentence.start <= match.start < sentence.end]
            near = float(self._near(np.array([sentence.cosine]))[0])
            return replace(sentence, score=alpha * near + (1 - alpha) * _information(own) / spread)

        return [replace(hit, sentences=tuple(scored(each, hit) for each in hit.sentences)) for hit in hits]

    def _read_hits(self, ids: Sequence[str]) -> list[Hit]:
        """Passages with their true cosines, in the order of their ids."""
        rows = self._index.store.get(MAIN, ids=ids, metadatas=True, documents=True, embeddings=True)
        by_id = {}
        for id_, row, text, own in zip(rows.ids, rows.metadatas, rows.texts, rows.vectors, strict=True):
            check_row(id_, row)
            by_id[id_] = make_hit(id_, row, text, float(cosines(self._vector, np.asarray(own, np.float64))))
        # Pieces may be deleted meanwhile; documents' passages go with their versions.
        if gone := self._words.passages.of_documents([id_ for id_ in ids if id_ not in by_id]):
            raise ForeignCollection(
                f"passage {gone[0]!r} of index {self._index.name!r} is gone: something else has deleted it; call "
                "check()"
            )
        return [by_id[id_] for id_ in ids if id_ in by_id]

    def _restrictions(self, filters: Sequence[Filter]) -> list[Restriction]:
        """Chroma's conditions for the words: those on documents and versions as they are, others by the rows' ids."""
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


def _information(matches: Sequence[WordMatch]) -> float:
    """Sum of the weights of different terms."""
    return sum({match.term: match.weight for match in matches}.values())
