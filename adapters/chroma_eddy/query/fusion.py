"""`Fusion`: meaning and words together; candidates of both sides, each with both true scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from chroma_eddy.errors import ForeignCollection
from chroma_eddy.index_core import IndexCore
from chroma_eddy.query.hits import Candidates
from chroma_eddy.query.options import TYPED_AMONG, TYPED_POWER, TYPED_SCALE, WORDS_SCALE, Filter, Query, conjunction
from chroma_eddy.query.ranking import Standardiser, cosines, reciprocal_rank_fusion
from chroma_eddy.rows.schema import DIGEST
from chroma_eddy.storage.failures import translated_errors
from chroma_eddy.storage.names import MAIN
from chroma_eddy.storage.pages import Rows
from chroma_eddy.storage.vectors import ROW
from chroma_eddy.types import Highlight, Hit, WordMatch
from chroma_eddy.words.bm25 import Restriction
from chroma_eddy.words.bm25_pair import WordScore
from chroma_eddy.words.operators import Asked
from eddy_embed.integrations.documents import DOCUMENT
from eddy_embed.utils.arrays import Doubles

Numbers = TypeVar("Numbers", float, Doubles)


class Fusion:
    """One question's scores by meaning and by words; the question's vector has the shape (dimension,)."""

    def __init__(self, index: IndexCore, vector: Doubles, question: str, query: Query) -> None:
        """Read what the words and a sample of the vectors say about the whole library."""
        asked = Asked.of(question).text
        self._index, self._vector, self._query, self._typed = index, vector, query, asked.casefold().split()
        self._words = index.words.current()
        self._terms = self._words.terms.of_question(asked)
        self._weights = {term: self._words.passages.weight(term) for term in self._terms}
        information = self._words.passages.information(self._terms)
        self._shares = {
            term: repeats * self._weights[term] / information for term, repeats in Counter(self._terms).items()
        }
        self._near = Standardiser.of(index.sample_vectors() @ vector / np.linalg.norm(vector))

    def candidates(self, nearest: Sequence[str], filters: Sequence[Filter]) -> Candidates:
        """The nearest passages, by their ids, and those that share words with the question, by both, best first.

        Raises:
            ForeignCollection: A passage is among the vectors or among the words alone: another process is writing it,
                or something else has changed it.
        """
        query, terms = self._query, self._terms
        by_words = self._words.best(terms, query.candidates, self._restrictions(filters)) if query.alpha < 1 else []
        found = self._word_scores(list(dict.fromkeys([*nearest, *by_words])))
        if not found:
            return Candidates([])
        ids, own = list(found), list(found.values())
        near = self._near(cosines(self._vector, self._vectors_of(ids, [each.vector for each in own])))
        bm25, worded = np.array([each.bm25 for each in own]), np.array([each.relative for each in own])
        if query.fusion == "ranks":
            by_meaning = [ids[at] for at in np.argsort(-near, kind="stable") if ids[at] in set(nearest)]
            ranks = reciprocal_rank_fusion([by_meaning, [id_ for id_ in by_words if id_ in found]])
            joined = np.array([ranks[id_] for id_ in ids])
        else:
            joined = self._joined(near, worded)
            first = np.argsort(-joined, kind="stable")[: max(TYPED_AMONG, query.chosen_from)]
            joined[first] += self._as_typed([ids[at] for at in first])
        order = np.argsort(-joined, kind="stable").tolist()
        pieces = frozenset(id_ for id_, each in found.items() if each.is_piece)
        return Candidates([ids[at] for at in order], joined[order], bm25[order], near[order], pieces)

    def _word_scores(self, ids: Sequence[str]) -> dict[str, WordScore]:
        """What passages share with the question; a piece whose words are yet to be written shares nothing."""
        scores = self._words.scores(self._terms, ids)
        missing = self._index.store.get(MAIN, ids=[id_ for id_ in ids if id_ not in scores], metadatas=True)
        for id_, row in zip(missing.ids, missing.metadatas, strict=True):
            if row.get(DIGEST) != "":
                raise ForeignCollection(
                    f"row {id_!r} of index {self._index.name!r} has no words: something else has written it; call "
                    "check()"
                )
            scores[id_] = WordScore(0.0, 0.0, row.get(ROW, -1), True)
        return {id_: scores[id_] for id_ in ids if id_ in scores}

    def _vectors_of(self, ids: Sequence[str], numbers: Sequence[int]) -> Doubles:
        """Vectors of passages, by the numbers that the words have of them."""
        rows = Rows(list(ids), [{ROW: number} for number in numbers], [], np.zeros((0, 0), np.float32))
        return self._index.store.vectors_of(MAIN, rows).astype(np.float64)

    def with_matches(self, hits: Sequence[Hit]) -> list[Hit]:
        """Add the places of the question's words, and their share of its information."""
        found = []
        for hit in hits:
            matches = tuple(
                WordMatch(hit.start + term.start, hit.start + term.end, term.text, self._weights[term.text])
                for term in self._words.terms(hit.text)
                if term.text in self._weights
            )
            found.append(replace(hit, matches=matches, coverage=self._coverage(matches)))
        return found

    def with_scored_sentences(self, hits: Sequence[Hit]) -> list[Hit]:
        """Score the sentences of hits as passages are: by their cosine and the words that they share."""

        def scored(sentence: Highlight, hit: Hit) -> Highlight:
            own = [match for match in hit.matches if sentence.start <= match.start < sentence.end]
            near = float(self._near(np.array([sentence.cosine]))[0])
            return replace(sentence, score=self._joined(near, self._coverage(own)))

        return [replace(hit, sentences=tuple(scored(each, hit) for each in hit.sentences)) for hit in hits]

    def _joined(self, near: Numbers, words: Numbers) -> Numbers:
        """What meaning, in standard deviations, and words, relative to the question's information, give together."""
        return self._query.alpha * near + (1 - self._query.alpha) * WORDS_SCALE * words

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

    def _coverage(self, matches: Iterable[WordMatch]) -> float:
        """Share of the question's information that different terms have."""
        return sum(self._shares[term] for term in dict.fromkeys(match.term for match in matches))

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
