"""Options of a query, and Chroma's conditions on rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from chroma_eddy.rows.conditions import check_conditions
from eddy_embed.encoding.validation import check_count, check_seconds
from eddy_embed.errors import InvalidParameter
from eddy_embed.integrations.documents import DOCUMENT

if TYPE_CHECKING:
    from eddy_embed import Reranker  # imports torch

Unit = Literal["passage", "sentence", "document"]
Fusion = Literal["scores", "ranks"]
Filter = dict[str, Any]
ALPHA = 0.5
"""Weight of meaning in hybrid queries."""
KEYWORD_SCALE, TYPED_SCALE, TYPED_POWER = 1.5, 4.0, 8
"""Standard deviations of the cosine that count as much as a BM25 as high as the Euclidean length of the question's
weights, and as a question that stands in a passage word for word; and the power that leaves little of the latter where
a word is missing.

Over the length and not the sum of the weights, BM25 counts for more in a long question, which tells more. Chosen with
`ALPHA` on manuals and abstracts, with vectors of token embeddings, of layers and of an encoder.
"""
RERANK_FROM = 10
"""Default of how many of the best hits the language model re-ranks."""
TYPED_AMONG = 30
"""Fewest of the best candidates in which the question's words are looked for as they were typed."""


@dataclass(frozen=True)
class Query:
    """Options of a query, as `Index.query` documents them, and `ids`, the only rows to look at; None: all."""

    k: int
    where: Filter | None = None
    where_document: Filter | None = None
    documents: Sequence[str] | None = None
    unit: Unit = "passage"
    prefilter: int | None = None
    hybrid: bool | None = False
    fusion: Fusion = "scores"
    alpha: float = ALPHA
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
        check_count("k", self.k)
        check_conditions(self.where, self.where_document)
        check_count("prefilter", self.prefilter)
        check_count("fetch_k", self.fetch_k)
        if self.unit not in get_args(Unit):
            raise InvalidParameter(f"unit={self.unit!r:.80} is unknown; choose one of {', '.join(get_args(Unit))}")
        if not 0 <= self.lambda_mult <= 1:
            raise InvalidParameter(f"lambda_mult={self.lambda_mult!r} must lie between 0 and 1")
        self._check_fusion()
        self._check_rerank()
        given = () if self.documents is None else self.documents
        if (
            isinstance(given, str)
            or not isinstance(given, Collection)
            or not all(isinstance(id_, str) for id_ in given)
        ):
            raise InvalidParameter(f"documents={given!r:.80} must be a list of ids, which are strings")
        if self.sentences and self.unit != "passage":
            raise InvalidParameter(f"sentences are marked in a passage, not in a {self.unit}; leave one of them out")
        if self.unit != "passage" and (self.hybrid or self.where_document is not None):
            raise InvalidParameter(f"words are searched in a passage, not in a {self.unit}; leave unit out")

    def _check_rerank(self) -> None:
        check_count("rerank_from", self.rerank_from)
        check_seconds("rerank_seconds", self.rerank_seconds)
        if self.rerank is None and (self.rerank_from, self.rerank_seconds, self.progress) != (None, None, None):
            raise InvalidParameter("rerank_from=, rerank_seconds= and progress= belong to rerank=True; leave them out")
        if self.rerank is not None and (self.unit != "passage" or self.mmr):
            raise InvalidParameter(
                f"rerank=True judges passages and sorts them; unit={self.unit!r} and mmr={self.mmr} do not go with it"
            )

    def _check_fusion(self) -> None:
        if self.fusion not in get_args(Fusion):
            raise InvalidParameter(
                f"fusion={self.fusion!r:.80} is unknown; choose one of {', '.join(get_args(Fusion))}"
            )
        if not 0 <= self.alpha <= 1:
            raise InvalidParameter(f"alpha={self.alpha!r} must lie between 0, words alone, and 1, meaning alone")
        if self.hybrid is False and self._says_how_to_fuse:
            raise InvalidParameter(
                f"alpha={self.alpha!r} and fusion={self.fusion!r} belong to hybrid=True; leave them out"
            )
        if self.alpha != ALPHA and self.fusion == "ranks":
            raise InvalidParameter(f"alpha={self.alpha!r} weighs scores, and fusion='ranks' has none; leave it out")

    @property
    def _says_how_to_fuse(self) -> bool:
        return (self.alpha, self.fusion) != (ALPHA, "scores")

    def resolved(self, has_words: bool) -> Query:
        """The query with True or False for `hybrid`; None means True for passages of an index that has its words."""
        if self.hybrid is not None:
            return self
        hybrid = self.unit == "passage" and (has_words or self._says_how_to_fuse)
        return replace(self, hybrid=hybrid)

    @property
    def first_stage(self) -> Query:
        """The query for what is re-ranked: more hits, without their sentences."""
        return replace(self, k=max(self.k, self.rerank_from or RERANK_FROM), sentences=False)

    @property
    def candidates(self) -> int:
        """Number of rows to fetch, the nearest and, if `hybrid`, those with the highest BM25."""
        if self.hybrid:
            return max(self.k, self.fetch_k or 100)
        return self.chosen_from

    @property
    def chosen_from(self) -> int:
        """Number of the best rows among which hits are chosen."""
        return max(self.k, self.fetch_k or 20) if self.mmr else self.k


def conjunction(filters: Sequence[Filter]) -> Filter | None:
    """The condition that all of some conditions are met; None without any."""
    return {"$and": list(filters)} if len(filters) > 1 else next(iter(filters), None)


def nothing_allowed(query: Query, filters: Sequence[Filter]) -> bool:
    """Whether no row can meet the conditions, which Chroma would not take."""
    return query.ids == [] or any(condition.get(DOCUMENT) == {"$in": []} for condition in filters)
