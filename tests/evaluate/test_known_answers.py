"""Encoders whose scores are known before they are measured: one that knows the answers, and one that knows nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eddy_embed.analysis.evaluate.results import Cost, TaskResult
from eddy_embed.analysis.evaluate.runner import _judged
from eddy_embed.analysis.evaluate.systems import System
from eddy_embed.analysis.evaluate.task_vectors import TaskVectors
from eddy_embed.analysis.evaluate.tasks import Classification, OddOneOut, Pairs, Retrieval, Task
from eddy_embed.encoding.finalize import unit

DOCUMENTS, QUERIES, WIDTH = 120, 900, 24
NO_PAIRS = np.zeros((0, 2), np.int64)


def judged(task: Task, library: np.ndarray, asked: np.ndarray, pairs: np.ndarray = NO_PAIRS, owners=None) -> TaskResult:
    owners = np.arange(len(library)) if owners is None else owners
    return _judged(
        System("plain"), task, TaskVectors(unit(library), unit(library), owners, unit(asked), pairs, Cost()), {}
    )


def within(values: np.ndarray, expected: float) -> bool:
    """Whether a mean lies within four standard errors of what is expected."""
    return abs(values.mean() - expected) <= 4 * values.std() / math.sqrt(len(values)) + 1e-12


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([count, seed]).standard_normal((count, WIDTH))


def shelf() -> Retrieval:
    """Two passages a document, one relevant document a query."""
    names = [str(at) for at in range(DOCUMENTS)]
    grades = [{names[at % DOCUMENTS]: 1.0} for at in range(QUERIES)]
    return Retrieval("shelf", names, names, [str(at) for at in range(QUERIES)], grades, 0)


def test_retrieval() -> None:
    owners = np.repeat(np.arange(DOCUMENTS), 2)
    found = np.eye(DOCUMENTS)
    library = np.zeros((2 * DOCUMENTS, DOCUMENTS))
    library[::2], library[1::2] = found, found.mean(0)
    perfect = judged(shelf(), library, found[np.arange(QUERIES) % DOCUMENTS], owners=owners)
    assert {metric: perfect.score(metric) for metric in perfect.metrics} == dict.fromkeys(perfect.metrics, 1.0)
    chance = judged(shelf(), noise(2 * DOCUMENTS), noise(QUERIES), owners=owners).metrics
    first = range(1, 11)
    assert within(chance["ndcg@10"], sum(1 / math.log2(rank + 1) for rank in first) / DOCUMENTS)
    assert within(chance["mrr@10"], sum(1 / rank for rank in first) / DOCUMENTS)
    assert within(chance["recall@10"], 10 / DOCUMENTS)
    assert within(chance["recall@100"], 100 / DOCUMENTS)


def test_similarity() -> None:
    count = 1500
    gold = np.random.default_rng(5).random(count) * 5
    task = Pairs("pairs", [f"a{at}" for at in range(count)], [f"b{at}" for at in range(count)], gold.tolist())
    pairs = np.stack([np.arange(count), np.arange(count, 2 * count)], axis=1)
    angles = np.arccos(gold / 5)
    turned = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert judged(task, np.concatenate([np.tile([1.0, 0], (count, 1)), turned]), turned[:0], pairs).score() == 1
    assert judged(task, np.concatenate([np.tile([-1.0, 0], (count, 1)), turned]), turned[:0], pairs).score() == -1
    chance = judged(task, noise(2 * count), noise(0), pairs)
    assert abs(chance.score()) < 4 / math.sqrt(count) and chance.interval().tie


def test_classification() -> None:
    labels = [str(at % 4) for at in range(800)]
    task = Classification("labels", labels[:400], labels[:400], labels[400:], labels[400:])
    known = np.eye(4)[[int(label) for label in labels]]
    assert judged(task, known[:400], known[400:]).score() == 1
    assert within(judged(task, noise(400), noise(400, 1)).metrics["accuracy"], 0.25)
    crossed = Classification("labels", labels[:400], labels[:400], [], [])
    assert judged(crossed, known[:400], known[:0]).score() == 1
    assert judged(crossed, noise(400), known[:0]).score() == pytest.approx(0.25, abs=0.09)


def test_the_odd_word() -> None:
    questions = np.repeat(np.arange(400), 5)
    answers = np.arange(400) * 5 + np.random.default_rng(6).integers(0, 5, 400)
    task = OddOneOut("odd", [""] * 2000, [(0, 1)] * 2000, questions.tolist(), answers.tolist())
    known = np.tile([1.0, 0], (2000, 1))
    known[answers] = [0.0, 1]
    assert judged(task, known, known[:0], owners=questions).score() == 1
    assert within(judged(task, noise(2000), noise(0), owners=questions).metrics["accuracy"], 0.2)
