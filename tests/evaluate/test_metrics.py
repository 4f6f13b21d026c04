"""Scores equal those of scipy and scikit-learn, and hand-worked ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score

from eddy_embed.evaluate import metrics

values = st.lists(st.integers(0, 5), min_size=3, max_size=30)


@given(st.data(), values)
def test_spearman_equals_scipy(data, gold) -> None:
    scores = data.draw(st.lists(st.integers(0, 5), min_size=len(gold), max_size=len(gold)))
    mine = metrics.spearman(np.array(scores, float), np.array(gold, float))
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


def test_ndcg_counts_relevant_documents_that_were_not_found() -> None:
    # Found: grade 2 at rank 2. DCG = 2/log2(3) = 1.2619. Ideal: 3 then 2: 3/log2(2) + 2/log2(3) = 4.2619.
    assert metrics.ndcg(np.array([0.0, 2.0]), np.array([3.0, 2.0])) == pytest.approx(1.2619 / 4.2619, abs=1e-4)
    assert metrics.ndcg(np.array([0.0, 0.0]), np.array([1.0])) == 0.0


def test_recall_and_reciprocal_rank_by_hand() -> None:
    grades = np.array([0.0, 1.0, 0.0, 2.0])
    assert metrics.recall(grades, np.array([1.0, 2.0, 1.0]), k=3) == pytest.approx(1 / 3)
    assert metrics.recall(grades, np.array([1.0, 2.0, 1.0]), k=4) == pytest.approx(2 / 3)
    assert metrics.reciprocal_rank(grades) == 0.5
    assert metrics.reciprocal_rank(np.zeros(3)) == 0.0


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for trial in range(100):
        sample = generator.normal(0.3, 1.0, 80)
        interval = metrics.bootstrap(lambda index, sample=sample: float(sample[index].mean()), 80, seed=trial)
        covered += interval.low <= 0.3 <= interval.high
        assert interval.low <= interval.value <= interval.high
    assert 88 <= covered <= 99


def test_a_difference_that_may_be_none_is_a_tie() -> None:
    generator = np.random.default_rng(2)
    noise = generator.normal(0, 1, 200)
    assert metrics.bootstrap(lambda index: float((noise - noise.mean())[index].mean()), 200).tie
    assert not metrics.bootstrap(lambda index: float((noise - noise.mean() + 1)[index].mean()), 200).tie


def test_accuracy_separates_what_can_be_separated() -> None:
    generator = np.random.default_rng(3)
    labels = ["a", "b"] * 30
    vectors = generator.normal(0, 0.1, (60, 4)) + np.array([[i % 2, 0, 0, 0] for i in range(60)])
    assert metrics.accuracy(vectors[:40], labels[:40], vectors[40:], labels[40:]).mean() == 1.0
    assert metrics.cross_validated(vectors, labels).mean() == 1.0
    noise = generator.normal(0, 1, (60, 4))
    assert metrics.cross_validated(noise, labels).mean() < 0.8
