"""Methods are combined by what one half of a task shows, and scored on the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from eddy_embed.analysis.evaluate.tasks import Pairs, Retrieval

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def against(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import against_encoder

    return against_encoder


def similarities(against: ModuleType) -> tuple[Pairs, dict[str, object]]:
    """Forty pairs whose gold is the sum of what two methods say; a third says nothing of it."""
    random = np.random.default_rng(0)
    one, other, noise = random.normal(size=(3, 40))
    task = Pairs("made", ["a"] * 40, ["b"] * 40, list(one + 0.5 * other))
    none = np.zeros(0, np.int64)
    given = {"one": one, "other": other, "noise": noise}
    return task, {name: against.Cosines(values, none) for name, values in given.items()}


def test_methods_that_know_different_things_are_combined(against: ModuleType) -> None:
    task, systems = similarities(against)
    chosen, combined = against.search(task, systems, np.arange(0, 40, 2))
    assert chosen == [("one", 1.0), ("other", 0.5)]
    unseen = np.arange(1, 40, 2)
    assert against.judged(task, combined, unseen).score() == pytest.approx(1.0)
    assert against.judged(task, systems["one"], unseen).score() < 0.95


def test_the_search_does_not_see_the_other_half(against: ModuleType) -> None:
    task, systems = similarities(against)
    seen = np.arange(0, 40, 2)
    gold = np.array(task.gold)
    gold[1::2] = np.random.default_rng(1).normal(size=20)
    assert against.search(replace(task, gold=list(gold)), systems, seen)[0] == against.search(task, systems, seen)[0]


def test_a_document_counts_by_its_nearest_passage_and_words_add_to_it(against: ModuleType) -> None:
    texts = ["a heron stands in the water", "bread rises in the oven", "a comet crosses the sky"]
    queries, grades = ["heron", "comet"], [{"a": 1.0}, {"c": 1.0}]
    task = Retrieval("made", ["a", "b", "c"], texts, queries, grades, 0)
    # Two passages of the first document, one of each other: the vectors find the second query's document alone.
    given = against.Cosines(np.array([[0.1, 0.2, 0.9, 0.3], [0.1, 0.2, 0.3, 0.9]]), np.array([0, 0, 1, 2]))
    assert given.documents().tolist() == [[0.2, 0.9, 0.3], [0.2, 0.3, 0.9]]
    both = np.arange(2)
    assert against.judged(task, given, both).metrics["mrr@10"].tolist() == pytest.approx([1 / 3, 1.0])
    weight, added = against.with_words(task, given, against.standardised(against.bm25(task)), both)
    assert weight > 0
    assert against.judged(task, added, both).metrics["mrr@10"].tolist() == [1.0, 1.0]


def test_words_that_do_harm_are_left_out(against: ModuleType) -> None:
    """So does a query without a word of any document: it has the same score for all of them."""
    texts = ["a heron stands in the water", "bread rises in the oven"]
    task = Retrieval("made", ["a", "b"], texts, ["heron", "zebra"], [{"b": 1.0}, {"b": 1.0}], 0)
    given = against.Cosines(np.array([[0.1, 0.9], [0.1, 0.9]]), np.array([0, 1]))
    weight, added = against.with_words(task, given, against.standardised(against.bm25(task)), np.arange(2))
    assert weight == 0.0
    assert np.isfinite(added.values).all()


def test_two_halves_make_one_outcome(against: ModuleType) -> None:
    """Each half's similarities have a scale of their own, which leaves the whole as it is."""
    task, _ = similarities(against)
    halves = [np.arange(0, 40, 2), np.arange(1, 40, 2)]
    one = against.Cosines(np.array(task.gold), np.zeros(0, np.int64))
    other = replace(one, values=100 + 7 * one.values)
    found = against.pooled([against.judged(task, each, half) for each, half in zip((one, other), halves, strict=True)])
    assert found.metrics["spearman"].shape == (40, 2)
    assert found.score() > 0.95
    same = against.pooled([against.judged(task, one, half) for half in halves])
    assert found.score() == pytest.approx(same.score())
