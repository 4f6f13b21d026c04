"""The benchmarks of long documents: what counts as found, whose time is whose, what is carried between windows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.comparison import embedder
from tests.test_long import TEXT

from eddy_embed.text.sequence import Role, Sequence, Window

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


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
    from long_retrieval import _read, _tables

    files = _read()
    assert files and all(told["rows"] for told in files)
    assert _tables(files) in (BENCHMARKS.parent / "docs" / "long-documents.md").read_text(encoding="utf-8")


def test_time_inside_another_part_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import long_speed

    now = iter([0.0, 1.0, 4.0, 6.0])
    monkeypatch.setattr(long_speed.time, "perf_counter", lambda: next(now))
    clock = long_speed.Clock()
    with clock.part("outer"), clock.part("inner"):
        pass
    assert clock.spent == {"outer": 1.0 + 2.0, "inner": 3.0}


def test_speeds_are_told_for_a_thousand_words() -> None:
    from long_speed import table

    seconds = {"forward": 4.0, "other": 1.0}
    late = {"system": "eddy late", "words": 2000, "total": 5.0, "seconds": seconds, "kilobytes": {"passages": 9.5}}
    other = {**late, "system": "other", "seconds": {"forward": 5.0}, "kilobytes": {"passages": 8.0, "sentences": 30.0}}
    head, _, *rows = table([late, other]).splitlines()
    assert head == "| system | words/s | forward | other | kB: passages | documents | sentences |"
    assert rows == [
        "| eddy late | 400 | 2.000 | 0.500 | 9.5 |  |  |",
        "| other | 400 | 2.500 | 0.000 | 8.0 |  | 30.0 |",
    ]


def window(start: int, ends: list[int]) -> Window:
    """A window of blocks of one token, each behind its PST, all behind their B-PSTs and a special."""
    count = len(ends)
    roles = [Role.SPECIAL, *[Role.BPST] * count, *[Role.PST, Role.TEXT] * count]
    places = np.full(len(roles), -1)
    stops = places.copy()
    texts = np.arange(count + 2, len(roles), 2)
    places[texts], stops[texts] = [start, *ends[:-1]], ends
    edges = [(1 + at, text) for at, text in enumerate(texts)] + [(text - 1, text) for text in texts]
    none = np.zeros(len(roles), np.int64)
    return Window(Sequence(none, np.array(roles), places, stops, none, np.array(edges, np.int64)), texts)


def test_what_is_carried_by_hand() -> None:
    from long_carry import carried

    # The second window reads the block that ends at 30 again, the third begins where the second ends.
    windows = [window(0, [10, 20, 30]), window(20, [30, 40]), window(40, [50])]
    moved, copies = carried(windows, 3, True)
    assert [int((job.sequence.roles == Role.BPST).sum()) for job in moved] == [3, 2 + 2, 1 + 3]
    # Into the second: the blocks that end at 10 and 20; into the third: 20 of the first, 30 and 40 of the second.
    first, second = (job.sequence.text.tolist() for job in moved[:2])
    into_second = [(1, 1, 0, first[0]), (1, 2, 0, first[1])]
    assert copies == [*into_second, (2, 1, 0, first[1]), (2, 2, 1, second[0]), (2, 3, 1, second[1])]
    for job, before in zip(moved, windows, strict=True):
        added = len(job.sequence) - len(before.sequence)
        assert job.counted.tolist() == (before.counted + added).tolist()
        into, source = job.sequence.edges.T
        assert set(job.sequence.roles[into]) == {int(Role.BPST), int(Role.PST)}
        assert set(job.sequence.roles[source]) == {int(Role.TEXT)}
    assert carried(windows, 3, False)[1] == []


def test_later_windows_know_of_earlier_ones_and_not_the_other_way_round() -> None:
    from long_carry import read

    e = embedder("llama", "htp", max_length=80)
    usual = e.encode_long(TEXT, passage_size=20, parts=("passages",))
    nothing, full, empty = (read(e, [TEXT], 20, most, filled)[0] for most, filled in ((0, True), (8, True), (8, False)))

    def apart(one: Any, other: Any) -> list[float]:
        pairs = zip(one.passages, other.passages, strict=True)
        return [float(np.abs(a.vector - b.vector).max()) for a, b in pairs]

    assert usual.n_windows > 1 and max(apart(usual, nothing)) <= 1e-6
    assert apart(full, usual)[0] <= 1e-6 and apart(full, usual)[-1] > 1e-4
    assert apart(full, empty)[-1] > 1e-4
