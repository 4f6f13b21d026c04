"""Orders of passages: by words, by several orders together, and by how much each adds to those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from eddy_embed.errors import MissingExtra

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

SMOOTHING = 60
"""Added to ranks, so that the first few weigh nearly the same (Cormack, Clarke and Büttcher 2009)."""


class Words:
    """BM25 over texts (Lucene's variant, k1 = 1.5, b = 0.75), in memory."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str], language: str) -> None:
        """Count words.

        Args:
            ids: Of the texts.
            texts: What is searched.
            language: Of the texts; English stop words are left out.

        Raises:
            MissingExtra: bm25s is not installed.
        """
        try:
            import bm25s
        except ModuleNotFoundError:
            raise MissingExtra('bm25s is not installed; hybrid queries need pip install "eddy-embed[hybrid]"') from None
        self.ids = list(ids)
        self._stop = "en" if language == "en" else []
        self._index: Any = None
        self._split = bm25s.tokenize
        tokens = self._split(list(texts), stopwords=self._stop, show_progress=False)
        if any(len(each) for each in tokens.ids):
            self._index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
            self._index.index(tokens, show_progress=False)

    def ranked(self, question: str, allowed: set[str] | None, most: int) -> list[str]:
        """Ids of the texts that share a word with a question, best first.

        Args:
            question: What is asked.
            allowed: Ids that may be given; None: all.
            most: How many are wanted.
        """
        words = self._split([question], stopwords=self._stop, show_progress=False, return_ids=False)[0]
        if self._index is None or not words:
            return []
        scores = self._index.get_scores(words)
        found: list[str] = []
        for at in np.argsort(-scores, kind="stable"):
            if scores[at] <= 0 or len(found) == most:
                break
            if allowed is None or self.ids[at] in allowed:
                found.append(self.ids[at])
        return found


def fused(rankings: Sequence[Sequence[str]]) -> dict[str, float]:
    """Reciprocal rank fusion: ids with their scores, best first.

    Args:
        rankings: Ids in order, each without repetition.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, id_ in enumerate(ranking, start=1):
            scores[id_] = scores.get(id_, 0.0) + 1 / (SMOOTHING + rank)
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def diverse(question: Doubles, vectors: Doubles, k: int, balance: float) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): indices in the order of choice.

    Args:
        question: Shape (dimension,).
        vectors: Shape (candidates, dimension), of length 1.
        k: How many are wanted.
        balance: Weight of the likeness to the question, against that to what is chosen already.
    """
    likeness = vectors @ question / max(float(np.linalg.norm(question)), np.finfo(np.float64).tiny)
    chosen: list[int] = []
    nearest = np.full(len(vectors), -np.inf)
    while len(chosen) < min(k, len(vectors)):
        gain = likeness if not chosen else balance * likeness - (1 - balance) * nearest
        gain = np.where(np.isin(np.arange(len(vectors)), chosen), -np.inf, gain)
        chosen.append(int(np.argmax(gain)))
        nearest = np.maximum(nearest, vectors @ vectors[chosen[-1]])
    return chosen


def cosines(question: Doubles, vectors: Doubles) -> Doubles:
    """Cosines of vectors of any length with a question's."""
    lengths = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(question)
    return np.asarray(vectors @ question / np.maximum(lengths, np.finfo(np.float64).tiny))
