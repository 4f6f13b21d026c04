"""Orders of hits: fusion by scores or by ranks, maximal marginal relevance, cosines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eddy_embed.utils.arrays import Doubles

RANK_OFFSET = 60
"""Added to ranks, so that the first few weigh nearly the same (Cormack, Clarke and Büttcher 2009)."""
ROUNDING = 1e-6
"""Deviation of cosines that rounding alone may make: vectors are stored in single precision."""


def reciprocal_rank_fusion(rankings: Sequence[Sequence[str]]) -> dict[str, float]:
    """Fuse rankings of ids: ids with their scores, best first (Cormack, Clarke and Büttcher 2009)."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, id_ in enumerate(ranking, start=1):
            scores[id_] = scores.get(id_, 0.0) + 1 / (RANK_OFFSET + rank)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Standardiser:
    """Expresses scores as standard deviations above the mean of a sample of the library; 0 if all of that is alike."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, sample: Doubles) -> Standardiser:
        """That of a sample of scores, shape (sample,)."""
        return cls(float(sample.mean()), float(sample.std())) if len(sample) else cls(0.0, 0.0)

    def __call__(self, scores: Doubles) -> Doubles:
        """Standardise scores, of any shape."""
        return (scores - self.mean) / self.deviation if self.deviation > ROUNDING else np.zeros_like(scores)


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


def cosines(question: Doubles, vectors: Doubles) -> Doubles:
    """Cosines of a question's vector, shape (dimension,), with vectors of any length, shape (..., dimension)."""
    lengths = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(question)
    return np.asarray(vectors @ question / np.maximum(lengths, np.finfo(np.float64).tiny))
