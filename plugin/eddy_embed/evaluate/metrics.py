"""Scores and their intervals: pure functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]
    Ints = NDArray[np.int64]

SAMPLES = 1000
"""Bootstrap samples."""
LEVEL = 0.95
"""Share of the bootstrap distribution that an interval holds."""


def spearman(scores: Doubles, gold: Doubles) -> float:
    """Spearman's rank correlation, ties given their mean rank; 0 where one side is constant.

    Args:
        scores: Shape (items,).
        gold: Shape (items,).
    """
    from scipy.stats import rankdata

    a, b = rankdata(scores), rankdata(gold)
    a, b = a - a.mean(), b - b.mean()
    length = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / length if length else 0.0


def ndcg(grades: Doubles, ideal: Doubles, k: int = 10) -> float:
    """Normalised discounted cumulative gain with linear gains, as trec_eval computes it.

    Args:
        grades: Grade of each document in the order found, shape (found,).
        ideal: Grades of all relevant documents, shape (relevant,).
        k: Documents looked at.
    """
    best = np.sort(ideal)[::-1][:k]
    total = float((best / np.log2(np.arange(2, len(best) + 2))).sum())
    found = grades[:k]
    return float((found / np.log2(np.arange(2, len(found) + 2))).sum()) / total if total else 0.0


def recall(grades: Doubles, ideal: Doubles, k: int = 100) -> float:
    """Share of the relevant documents among the first k found."""
    return float((grades[:k] > 0).sum()) / max(int((ideal > 0).sum()), 1)


def reciprocal_rank(grades: Doubles) -> float:
    """One over the rank of the first relevant document, 0 where none was found."""
    first = np.flatnonzero(grades > 0)
    return 1.0 / (int(first[0]) + 1) if len(first) else 0.0


@dataclass(frozen=True)
class Interval:
    """A value with the interval that holds `LEVEL` of its bootstrap distribution."""

    value: float
    low: float
    high: float

    @property
    def tie(self) -> bool:
        """Whether a difference may as well be none."""
        return self.low <= 0.0 <= self.high


def bootstrap(statistic: Callable[[Ints], float], items: int, seed: int = 0) -> Interval:
    """Percentile interval of a statistic over items drawn with replacement.

    Give it the difference of two systems on the same items for a paired interval.

    Args:
        statistic: Value on the items of these indices.
        items: Number of items.
        seed: Seed of the draws, so that every system sees the same ones.
    """
    generator = np.random.default_rng(seed)
    drawn = [statistic(generator.integers(0, items, items)) for _ in range(SAMPLES)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(statistic(np.arange(items)), float(low), float(high))


def accuracy(train: NDArray[Any], labels: list[str], test: NDArray[Any], gold: list[str]) -> Doubles:
    """Whether logistic regression on standardised vectors labels each test item rightly, shape (test items,)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(train, labels)
    return np.asarray(model.predict(test) == np.array(gold), np.float64)


def cross_validated(vectors: NDArray[Any], labels: list[str], folds: int = 5) -> Doubles:
    """`accuracy` of every item, predicted from the other folds; folds are stratified and fixed, shape (items,)."""
    from sklearn.model_selection import StratifiedKFold

    right = np.zeros(len(labels))
    given = np.array(labels)
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=0).split(vectors, given):
        right[test] = accuracy(vectors[train], given[train].tolist(), vectors[test], given[test].tolist())
    return right


def odd_one_out(vectors: Doubles, questions: Ints, answers: Ints) -> Doubles:
    """Whether the vector furthest from the mean of its question's is the answer, shape (questions,).

    Of vectors of length 1 it is the one with the largest sum of cosine distances to the others (Duan et al. 2025,
    appendix A.4).

    Args:
        vectors: Shape (vectors, width).
        questions: Question of each vector, ascending from 0, shape (vectors,).
        answers: Index among the vectors of each question's answer, shape (questions,).
    """
    borders = np.flatnonzero(np.diff(questions)) + 1
    starts = np.concatenate([np.zeros(1, np.int64), borders])
    distances = [np.linalg.norm(group - group.mean(0), axis=1) for group in np.split(vectors, borders)]
    picked = starts + np.array([int(np.argmax(each)) for each in distances])
    return np.asarray(picked == answers, np.float64)
