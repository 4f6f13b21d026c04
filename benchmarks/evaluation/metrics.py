"""Scores and their intervals: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eddy_embed.utils.arrays import Doubles

SAMPLES = 1000
"""Bootstrap samples."""
LEVEL = 0.95
"""Share of the bootstrap distribution that an interval holds."""
SEED = 0
"""Of the bootstrap's draws: every system sees the same ones."""
_TOGETHER = 1_000_000


def spearman(scores: Doubles, gold: Doubles, counts: Doubles | None = None) -> Doubles:
    """Spearman's rank correlation, shape (samples,), ties given their mean rank; 0 where one side is constant.

    Of scores and gold of shape (items,), each item as often as counted, shape (samples, items), or once.
    """
    counts = np.ones((1, len(scores))) if counts is None else counts
    total = counts.sum(1, keepdims=True)
    a, b = (_ranks(side, counts) - (total + 1) / 2 for side in (scores, gold))
    length = np.sqrt((counts * a * a).sum(1) * (counts * b * b).sum(1))
    return np.asarray((counts * a * b).sum(1) / np.where(length > 0, length, 1.0) * (length > 0))


def _ranks(values: Doubles, counts: Doubles) -> Doubles:
    """Mean rank of each item among as many copies of the items as are counted, shape (samples, items)."""
    found, inverse = np.unique(values, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    starts = np.searchsorted(inverse[order], np.arange(len(found)))
    groups = np.add.reduceat(counts[:, order], starts, axis=1)
    return np.asarray((np.cumsum(groups, axis=1) - (groups - 1) / 2)[:, inverse])


def ndcg(grades: Doubles, ideal: Doubles, k: int = 10) -> float:
    """Normalised discounted cumulative gain of the first k with linear gains, as trec_eval computes it.

    `grades` are those of the documents in the order found, `ideal` those of all relevant documents, in any order.
    """
    found, best = (
        float((side / np.log2(np.arange(2, len(side) + 2))).sum()) for side in (grades[:k], np.sort(ideal)[::-1][:k])
    )
    return found / best if best else 0.0


def recall(grades: Doubles, ideal: Doubles, k: int = 100) -> float:
    """Share of the relevant documents among the first k found."""
    return float((grades[:k] > 0).sum()) / max(int((ideal > 0).sum()), 1)


def reciprocal_rank(grades: Doubles, k: int = 10) -> float:
    """One over the rank of the first document of a grade above 0, 0 where none is among the first k."""
    first = np.flatnonzero(grades[:k] > 0)
    return 1.0 / (int(first[0]) + 1) if len(first) else 0.0


class Interval(NamedTuple):
    """A value with the interval that holds `LEVEL` of its bootstrap distribution."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, samples: Doubles) -> Interval:
        """Percentile interval of a statistic's values on bootstrap samples."""
        low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return cls(value, float(low), float(high))

    @property
    def rounded(self) -> list[float]:
        """Value and bounds, to five digits behind the point."""
        return [round(number, 5) for number in self]

    @property
    def tie(self) -> bool:
        """Whether the interval of a difference holds 0."""
        return self.low <= 0.0 <= self.high


def draws(items: int) -> Iterator[Doubles]:
    """How often each item is drawn in each of `SAMPLES` samples, the same for as many items, shape (some, items)."""
    generator = np.random.default_rng(SEED)
    together = max(1, min(SAMPLES, _TOGETHER // items))
    for first in range(0, SAMPLES, together):
        rows = min(together, SAMPLES - first)
        drawn = generator.integers(0, items, (rows, items)) + np.arange(rows)[:, None] * items
        yield np.bincount(drawn.ravel(), minlength=rows * items).reshape(rows, items).astype(np.float64)


def _classifier() -> Any:
    """Logistic regression on standardised vectors."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def accuracy(train: NDArray[Any], labels: list[str], test: NDArray[Any], gold: list[str]) -> Doubles:
    """Whether logistic regression on standardised vectors labels each test item rightly, shape (test items,)."""
    return np.asarray(_classifier().fit(train, labels).predict(test) == np.array(gold), np.float64)


def cross_validated(vectors: NDArray[Any], labels: list[str]) -> Doubles:
    """`accuracy` of every item, predicted from the other ones of five fixed, stratified folds, shape (items,)."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    gold = np.array(labels)
    return np.asarray(cross_val_predict(_classifier(), vectors, gold, cv=folds) == gold, np.float64)
