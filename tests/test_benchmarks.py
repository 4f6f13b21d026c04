"""The benchmarks: what they time and count, and how their tables come about."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent

# --- speed


def test_a_ratio_is_the_median_of_rounds_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    from speed import timing

    order: list[str] = []
    spent = {"one": iter([2.0, 9.0, 4.0]), "base": iter([1.0, 3.0, 2.0])}

    def seconds(run: Any, repeat: int) -> float:
        run()
        return next(spent[order[-1]])

    monkeypatch.setattr(timing, "seconds", seconds)
    found = timing.ratio(lambda: order.append("one"), lambda: order.append("base"), rounds=3)
    assert " ".join(order) == "one base base one one base base one"
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.5)
    assert (found.seconds, found.base, found.rounds) == (4.0, 2.0, 3)


# --- long documents


def document(*places: tuple[int, int]) -> Any:
    return SimpleNamespace(passages=[SimpleNamespace(start=start, end=end) for start, end in places])


def test_a_passage_counts_for_what_it_holds_half_of_or_what_holds_half_of_it() -> None:
    from long_retrieval import held_by

    documents = [document((0, 40), (40, 100), (100, 110)), document((0, 30), (30, 60))]
    spans = [np.array([(0, 50, 7), (52, 104, 3), (106, 110, 5)]), np.array([(0, 60, 1)])]
    # 7: the first passage is all its own, of the second it has 10 of 60; 3: 48 of 52, and 4 of 10; 5: 4 of 4.
    assert held_by(documents, spans).tolist() == [[1, 3], [1, 4], [3, 1], [5, 2], [7, 0]]


def test_the_best_passage_of_a_unit_is_its_score() -> None:
    from long_retrieval import Library, scored

    library = Library("by hand", [], [], ["a", "b"], [{1: 1.0}, {2: 1.0}], "")
    pairs = np.array([[0, 0], [0, 3], [1, 1], [2, 2]])
    cosines = np.array([[0.1, 0.5, 0.2, 0.4], [0.1, 0.5, 0.2, 0.9]])
    found = scored(library, pairs, cosines)
    assert found["mrr@10"].tolist() == [1.0, 1 / 3]
    assert found["ndcg@10"].tolist() == pytest.approx([1.0, 1 / 2])


def test_joined_documents_know_where_each_text_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    import long_retrieval
    from long_retrieval import TOGETHER, joined

    monkeypatch.setattr(long_retrieval, "digest", lambda task: "")
    texts = [f"Text {number}." * (number % 3 + 1) for number in range(2 * TOGETHER + 5)]
    ids = [str(number) for number in range(len(texts))]
    task: Any = SimpleNamespace(name="t", texts=texts, ids=ids, queries=["q"], grades=[{"4": 1.0}])
    library = joined(task, None)
    assert len(library.texts) == 3 and library.grades == [{4: 1.0}]
    for text, rows in zip(library.texts, library.spans, strict=True):
        assert all(text[start:end] == texts[number] for start, end, number in rows.tolist())
    assert sorted(int(number) for rows in library.spans for number in rows[:, 2]) == list(range(len(texts)))


def test_the_page_shows_what_was_measured_of_every_model() -> None:
    from long_retrieval import _read, _table

    files = _read()
    assert files and all(told["rows"] for told in files)
    assert _table(files) in (ROOT / "benchmarks" / "results" / "README.md").read_text(encoding="utf-8")


# --- index


def test_an_index_of_drawn_vectors_is_written_asked_and_opened(tmp_path: Path) -> None:
    from index_systems import RUNS

    asked = {"passages": 120, "questions": 5, "model": "eddy-tiny", "method": "plain:exit=0", "folder": str(tmp_path)}
    options: Any = SimpleNamespace(**asked)
    found = RUNS["index"](options)
    assert (
        found["dimensions"] == 320 and found["recall@10"] == 1 and found["disk, GB per 10^6 passages"] > 2 * 320 * 4e-3
    )
    for by in ("itself", "chromadb"):
        assert RUNS[by](options)[f"first answer by {by}, s"] > 0
