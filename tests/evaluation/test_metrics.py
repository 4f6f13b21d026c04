"""Scores equal those of scipy, of scikit-learn and of a slow computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evaluation.results import Cost, System, TaskResult
from evaluation.runner import retrieval_metrics
from evaluation.tasks import Retrieval
from hypothesis import given
from hypothesis import strategies as st

from evaluation import metrics


def spearmanr(*given: object) -> float:
    """Scipy's rank correlation; it takes half a second to import."""
    from scipy import stats

    return float(stats.spearmanr(*given).statistic)


values = st.lists(st.integers(0, 5), min_size=3, max_size=30)


@given(st.data(), values)
def test_spearman_equals_scipy(data, gold) -> None:
    scores = data.draw(st.lists(st.integers(0, 5), min_size=len(gold), max_size=len(gold)))
    (mine,) = metrics.spearman(np.array(scores, float), np.array(gold, float))
    if len(set(scores)) == 1 or len(set(gold)) == 1:
        assert mine == 0.0
    else:
        assert mine == pytest.approx(spearmanr(scores, gold))


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30).filter(any), st.integers(1, 12), st.randoms())
def test_ndcg_equals_scikit_learn(grades, k, random) -> None:
    from sklearn.metrics import ndcg_score  # it takes a second to import

    order = list(range(len(grades)))
    random.shuffle(order)
    found = np.array([grades[at] for at in order], float)
    scores = np.zeros(len(grades))
    scores[order] = np.arange(len(grades), 0, -1)
    assert metrics.ndcg(found, np.array(grades, float), k) == pytest.approx(ndcg_score([grades], [scores], k=k))


def test_scores_of_a_ranking_worked_out_by_hand() -> None:
    names = [f"d{number}" for number in range(150)]
    task = Retrieval("t", names, names, ["q"], [{"d1": 1.0, "d3": 3.0, "d60": 2.0, "d120": 1.0}], 0)
    scores = retrieval_metrics(task, -np.arange(150.0)[None])  # d0 first, d149 last
    gain = 1 / math.log2(3) + 3 / math.log2(5)
    best = 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4) + 1 / math.log2(5)
    assert scores["ndcg@10"][0] == pytest.approx(gain / best)
    assert scores["recall@10"][0] == 2 / 4 and scores["recall@100"][0] == 3 / 4
    assert scores["mrr@10"][0] == 1 / 2
    few = Retrieval("t", names[:20], names[:20], ["q"], [{"d15": 1.0}], 0)
    assert {name: row[0] for name, row in retrieval_metrics(few, -np.arange(20.0)[None]).items()} == {
        "ndcg@10": 0.0,
        "recall@10": 0.0,
        "mrr@10": 0.0,
    }


def outcome(items: np.ndarray, metric: str = "accuracy") -> TaskResult:
    return TaskResult(System("plain"), "t", {metric: items}, Cost(), {})


def test_bootstrap_scores_are_those_of_the_drawn_items() -> None:
    generator = np.random.default_rng(4)
    # Few values, so that both sides have ties.
    items = generator.integers(0, 6, (40, 2)).astype(float)
    samples = outcome(items, "spearman").samples["spearman"]
    assert samples.shape == (metrics.SAMPLES,)
    rows = np.concatenate(list(metrics.draws(40))).astype(int)
    assert (rows.sum(1) == 40).all()
    for counts, value in zip(rows[::97], samples[::97], strict=True):
        drawn = np.repeat(items, counts, axis=0)
        assert value == pytest.approx(spearmanr(drawn[:, 0], drawn[:, 1]))
    assert np.allclose(outcome(items[:, 0]).samples["accuracy"], rows @ items[:, 0] / 40)


def test_a_difference_is_paired_and_one_that_may_be_none_is_a_tie() -> None:
    generator = np.random.default_rng(2)
    items, noise = generator.normal(0, 10, 200), generator.normal(0, 1, 200)
    noise -= noise.mean()
    first, level, better = (outcome(items + more) for more in (0.0, noise, noise + 0.5))
    assert level.difference(first).tie
    # Unpaired, half a point would drown in the spread of the items.
    assert not better.difference(first).tie
    assert better.interval().low < first.interval().high
