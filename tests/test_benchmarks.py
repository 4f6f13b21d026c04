"""The benchmarks: what they time and count, and how their tables come about."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent

# --- long documents


def document(*places: tuple[int, int]) -> Any:
    return SimpleNamespace(passages=[SimpleNamespace(start=start, end=end) for start, end in places])


def test_a_passage_counts_for_what_it_holds_half_of_or_what_holds_half_of_it() -> None:
    from long_retrieval import held_by

    documents = [document((0, 40), (40, 100), (100, 110)), document((0, 30), (30, 60))]
    spans = [np.array([(0, 50, 7), (52, 104, 3), (106, 110, 5)]), np.array([(0, 60, 1)])]
    # 7: the first passage is all its own, of the second it has 10 of 60; 3: 48 of 52, and 4 of 10; 5: 4 of 4.
    assert held_by(documents, spans).tolist() == [[1, 3], [1, 4], [3, 1], [5, 2], [7, 0]]


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
