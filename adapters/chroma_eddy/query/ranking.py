"""Orders of passages: by words, by several orders together, and by how much each adds to those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]

RANK_OFFSET = 60
"""Added to ranks, so that the first few weigh nearly the same (Cormack, Clarke and Büttcher 2009)."""


def reciprocal_rank_fusion(rankings: Sequence[Sequence[str]]) -> dict[str, float]:
    """Reciprocal rank fusion: ids with their scores, best first.

    Args:
        rankings: Ids in order, each without repetition.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, id_ in enumerate(ranking, start=1):
            scores[id_] = scores.get(id_, 0.0) + 1 / (RANK_OFFSET + rank)
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def mmr_order(question: Doubles, vectors: Doubles, k: int, balance: float) -> list[int]:
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
