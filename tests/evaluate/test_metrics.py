"""Scores equal those of scipy, of scikit-learn and of a slow computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score

from eddy_embed.analysis.evaluate import metrics
from eddy_embed.analysis.evaluate.results import Cost, TaskResult
from eddy_embed.analysis.evaluate.runner import retrieval_metrics
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.analysis.evaluate.tasks import Retrieval

values = st.lists(st.integers(0, 5), min_size=3, max_size=30)


@given(st.data(), values)
def test_spearman_equals_scipy(data, gold) -> None:
    scores = data.draw(st.lists(st.integers(0, 5), min_size=len(gold), max_size=len(gold)))
    (mine,) = metrics.spearman(np.array(scores, float), np.array(gold, float))
    if len(set(scores)) == 1 or len(set(gold)) == 1:
        assert mine == 0.0
    else:
        assert mine == pytest.approx(spearmanr(scores, gold).statistic)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30).filter(any), st.integers(1, 12), st.randoms())
def test_ndcg_equals_scikit_learn(grades, k, random) -> None:
    order = list(range(len(grades)))
    random.shuffle(order)
    found = np.array([grades[at] for at in order], float)
    scores = np.zeros(len(grades))
    scores[order] = np.arange(len(grades), 0, -1)
    assert metrics.ndcg(found, np.array(grades, float), k) == pytest.approx(ndcg_score([grades], [scores], k=k))


@given(st.data(), st.integers(2, 40))
def test_retrieval_scores_equal_a_slow_computation(data, documents) -> None:
    grades = data.draw(st.lists(st.integers(0, 3), min_size=documents, max_size=documents).filter(any))
    scores = data.draw(st.lists(st.integers(0, 50), min_size=documents, max_size=documents, unique=True))
    names = [f"d{number}" for number in range(documents)]
    task = Retrieval("t", names, names, ["q"], [{n: float(g) for n, g in zip(names, grades, strict=True) if g}], 0)
    found = retrieval_metrics(task, np.array([scores], float))
    ranked = sorted(range(documents), key=lambda at: -scores[at])
    gain = sum(grades[at] / math.log2(rank + 2) for rank, at in enumerate(ranked[:10]))
    best = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(sorted(grades, reverse=True)[:10]))
    relevant = [rank for rank, at in enumerate(ranked) if grades[at] > 0]
    assert found["ndcg@10"][0] == pytest.approx(gain / best)
    assert found["recall@10"][0] == pytest.approx(sum(rank < 10 for rank in relevant) / len(relevant))
    assert found["mrr@10"][0] == pytest.approx(1 / (relevant[0] + 1) if relevant[0] < 10 else 0.0)
    assert "recall@100" not in found


def test_recall_at_a_hundred_is_there_for_collections_that_large() -> None:
    names = [f"d{number}" for number in range(150)]
    task = Retrieval("t", names, names, ["q"], [{"d5": 1.0, "d60": 2.0, "d120": 1.0}], 0)
    found = retrieval_metrics(task, -np.arange(150.0)[None])
    assert found["recall@100"][0] == pytest.approx(2 / 3)
    assert found["recall@10"][0] == pytest.approx(1 / 3)


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
        assert value == pytest.approx(spearmanr(drawn[:, 0], drawn[:, 1]).statistic)
    assert np.allclose(outcome(items[:, 0]).samples["accuracy"], rows @ items[:, 0] / 40)


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(100):
        interval = outcome(generator.normal(0.3, 1.0, 80)).interval()
        covered += interval.low <= 0.3 <= interval.high
        assert interval.low <= interval.value <= interval.high
    assert 88 <= covered <= 99


def test_a_difference_is_paired_and_one_that_may_be_none_is_a_tie() -> None:
    generator = np.random.default_rng(2)
    items, noise = generator.normal(0, 10, 200), generator.normal(0, 1, 200)
    noise -= noise.mean()
    first, level, better = (outcome(items + more) for more in (0.0, noise, noise + 0.5))
    assert level.difference(first).tie
    # Unpaired, half a point would drown in the spread of the items.
    assert not better.difference(first).tie
    assert better.interval().low < first.interval().high


def test_accuracy_separates_what_can_be_separated() -> None:
    generator = np.random.default_rng(3)
    labels = ["a", "b"] * 30
    vectors = generator.normal(0, 0.1, (60, 4)) + np.array([[i % 2, 0, 0, 0] for i in range(60)])
    assert metrics.accuracy(vectors[:40], labels[:40], vectors[40:], labels[40:]).mean() == 1.0
    assert metrics.cross_validated(vectors, labels).mean() == 1.0
    noise = generator.normal(0, 1, (60, 4))
    assert metrics.cross_validated(noise, labels).mean() < 0.8


def test_the_odd_one_is_found_in_every_question() -> None:
    answers = np.arange(40) * 5 + np.random.default_rng(6).integers(0, 5, 40)
    vectors = np.tile([1.0, 0.0], (200, 1))
    vectors[answers] = [0.0, 1.0]
    assert metrics.odd_one_out(vectors, np.repeat(np.arange(40), 5), answers).tolist() == [1.0] * 40
